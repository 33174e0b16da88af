// A Rapidbyte source in a page of C: what the warehouses of the shop had of each product, count after count. It makes the
// counts up. Build it by `python build.py`; `airbyte-proto init --new-connector rapidbyte --language c` writes one to begin
// from, with the headers that this one has from the package.
#include "arrow.h"

enum { ROWS_A_BATCH = 1000, PRODUCTS = 100, WAREHOUSES = 3 };
static const text NAMES[WAREHOUSES] = {TEXT("Bremen"), TEXT("Lyon"), TEXT("Porto")};
static text config;

EXPORT("open") void *open_(const char *p, u32 n) {
    config = (text){p, n};
    return answer_number(1);
}
EXPORT("validate") void *validate(u64 session) { return answer_validation(0, TEXT("the warehouses are open")); }
EXPORT("discover") void *discover(u64 session) {
    return answer_text(TEXT("{\"streams\": [{\"name\": \"stock\", \"schema\": {\"format\": \"columns\", \"data\": ["
        "{\"name\": \"id\", \"data_type\": \"Int64\", \"nullable\": false},"
        "{\"name\": \"warehouse\", \"data_type\": \"Utf8\", \"nullable\": false},"
        "{\"name\": \"product_id\", \"data_type\": \"Int64\", \"nullable\": false},"
        "{\"name\": \"pieces\", \"data_type\": \"Int64\", \"nullable\": true},"
        "{\"name\": \"counted_at\", \"data_type\": \"TimestampMicros\", \"nullable\": false}]},"
        "\"supported_sync_modes\": [\"full_refresh\", \"incremental\"],"
        "\"source_defined_cursor\": \"id\", \"source_defined_primary_key\": [\"id\"]}]}"));
}

static u64 batches, bytes;
static u32 emit_counts(i64 from, u32 count) {
    i64 *id = take(8 * count), *product = take(8 * count), *pieces = take(8 * count), *counted_at = take(8 * count);
    text *warehouse = take(sizeof(text) * count);
    u8 *is_unknown = take(count);
    for (u32 i = 0; i < count; i++) {
        id[i] = from + i + 1;
        warehouse[i] = NAMES[id[i] % WAREHOUSES];
        product[i] = id[i] % PRODUCTS + 1;
        pieces[i] = id[i] * 7 % 50;
        is_unknown[i] = id[i] % 25 == 0;  // nobody was there to count
        counted_at[i] = 1793491200000000 + id[i] * 60000000;  // a count a minute, from November 2026 on
    }
    column columns[] = {{"id", INT64, id}, {"warehouse", UTF8, warehouse}, {"product_id", INT64, product},
                        {"pieces", INT64, pieces, is_unknown}, {"counted_at", TIMESTAMP_MICROS, counted_at}};
    batches++;
    return emit_rows(columns, 5, count, &bytes);
}
// The rows up to `last` were given: the next sync goes on behind it.
static u32 take_checkpoint(i64 last) {
    text t = joined(TEXT("{\"cursor_field\": \"id\", \"cursor_value\": {\"type\": \"int64\", \"value\": "), number_text(last));
    t = joined(t, TEXT("}}"));
    checkpoint(0, t.p, t.n, r);
    return has_failed();
}
static u32 count_metric(u64 rows) {
    text t = joined(joined(TEXT("{\"name\": \"counts\", \"value\": {\"type\": \"counter\", \"value\": "), number_text(rows)), TEXT("}}"));
    metric(t.p, t.n, r);
    return has_failed();
}

EXPORT("run") void *run(u64 session, u32 phase, const char *p, u32 n, u32 is_dry, u32 has_max, u64 max) {
    text last = json_value((text){p, n}, TEXT("last_value"));
    i64 from = last.p ? json_number(last, TEXT("value"), 0) : 0, begin = from, to = json_number(config, TEXT("counts"), 300);
    if (has_max && to > from && max < (u64)(to - from)) to = from + max;
    for (u8 *mark = top; from < to; top = mark) {
        u32 count = to - from < ROWS_A_BATCH ? to - from : ROWS_A_BATCH;
        if (emit_counts(from, count)) return answer_host_error();
        from += count;
        if (count_metric(count) || take_checkpoint(from)) return answer_host_error();
    }
    return answer_read(from - begin, bytes, batches, batches);
}
EXPORT("close") void *close_(u64 session) { return answer_nothing(); }
