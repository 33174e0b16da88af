// A source for tests, in freestanding C: its config says how many rows the streams `users` and `orders` have. Each five are
// a batch with a checkpoint behind it, and a run goes on behind the last one that came back.
#include "arrow.h"

enum { ROWS_A_BATCH = 5 };
static text config;
static const char CATALOG[] =
    "{\"streams\": [{\"name\": \"users\", \"schema\": {\"format\": \"columns\", \"data\": ["
    "{\"name\": \"id\", \"data_type\": \"Int64\", \"nullable\": false}, {\"name\": \"name\", \"data_type\": \"Utf8\", \"nullable\": true}]},"
    "\"supported_sync_modes\": [\"full_refresh\", \"incremental\"], \"source_defined_cursor\": \"id\","
    "\"source_defined_primary_key\": [\"id\"]}, {\"name\": \"orders\", \"schema\": {\"format\": \"columns\", \"data\": ["
    "{\"name\": \"id\", \"data_type\": \"Int64\", \"nullable\": false}, {\"name\": \"name\", \"data_type\": \"Utf8\", \"nullable\": true}]},"
    "\"supported_sync_modes\": [\"full_refresh\", \"incremental\"], \"source_defined_cursor\": \"id\","
    "\"source_defined_primary_key\": [\"id\"]}]}";

EXPORT("open") void *open_(const char *p, u32 n) { config = (text){p, n}; return answer_number(1); }
EXPORT("validate") void *validate(u64 session) { return answer_validation(0, TEXT("fine")); }
EXPORT("discover") void *discover(u64 session) { return answer_text(TEXT(CATALOG)); }
EXPORT("close") void *close_(u64 session) { return answer_nothing(); }

static u32 take_checkpoint(i64 next) {
    text t = joined(TEXT("{\"cursor_field\":\"id\",\"cursor_value\":{\"type\":\"int64\",\"value\":"), number_text(next - 1));
    t = joined(joined(joined(t, TEXT("},\"next\":")), number_text(next)), TEXT("}"));
    checkpoint(0, t.p, t.n, r);
    return has_failed();
}

EXPORT("run") void *run(u64 session, u32 phase, const char *p, u32 n, u32 is_dry, u32 has_max, u64 max) {
    text context = {p, n}, stream = json_text(context, TEXT("stream_name")), last = json_value(context, TEXT("last_value"));
    i64 from = last.p ? json_number(last, TEXT("value"), -1) + 1 : 0, to = json_number(config, stream, 0), begin = from;
    u64 bytes = 0, batches = 0;
    for (u8 *mark = top; from < to; top = mark) {
        u32 count = to - from < ROWS_A_BATCH ? to - from : ROWS_A_BATCH;
        i64 *id = take(8 * count);
        text *name = take(sizeof(text) * count);
        for (u32 i = 0; i < count; i++) id[i] = from + i, name[i] = joined(joined(stream, TEXT(" ")), number_text(id[i]));
        column columns[] = {{"id", INT64, id}, {"name", UTF8, name}};
        if (emit_rows(columns, 2, count, &bytes)) return answer_host_error();
        from += count, batches++;
        if (take_checkpoint(from)) return answer_host_error();
    }
    return answer_read(from - begin, bytes, batches, batches);
}
