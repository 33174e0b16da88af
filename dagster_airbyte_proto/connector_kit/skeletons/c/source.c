// A source of one stream, `readings`, whose rows it makes up. Replace `discover` and `run` by what reads your data.
#include "arrow.h"

enum { ROWS_A_BATCH = 10000 };
static text config;

// open gets the config of the connection as JSON. What it returns comes back with every other call.
EXPORT("open") void *open_(const char *p, u32 n) {
    config = (text){p, n};
    if (json_number(config, TEXT("rows"), 0) < 0)
        return answer_error(CONFIG, TEXT("BAD_ROWS"), TEXT("`rows` is below 0: set it to the number of rows that you want"), 0);
    return answer_number(1);
}

// validate is `airbyte-proto check`. Look here whether what the config names can be reached.
EXPORT("validate") void *validate(u64 session) { return answer_validation(0, TEXT("all is well")); }

// discover names the streams: columns, ways to read them, the key, and the column that an incremental read goes by.
EXPORT("discover") void *discover(u64 session) {
    return answer_text(TEXT("{\"streams\": [{\"name\": \"readings\", \"schema\": {\"format\": \"columns\", \"data\": ["
        "{\"name\": \"id\", \"data_type\": \"Int64\", \"nullable\": false},"
        "{\"name\": \"sensor\", \"data_type\": \"Utf8\", \"nullable\": false},"
        "{\"name\": \"celsius\", \"data_type\": \"Float64\", \"nullable\": true},"
        "{\"name\": \"read_at\", \"data_type\": \"TimestampMicros\", \"nullable\": false}]},"
        "\"supported_sync_modes\": [\"full_refresh\", \"incremental\"],"
        "\"source_defined_cursor\": \"id\", \"source_defined_primary_key\": [\"id\"]}]}"));
}

// A checkpoint says that all rows up to `last` were given. The next incremental run gets it back, as the last value.
static u32 take_checkpoint(u64 number, i64 last, u64 rows, u64 bytes) {
    text t = joined(TEXT("{\"kind\":\"source\",\"stream\":\"readings\",\"cursor_field\":\"id\",\"id\":"), number_text(number));
    t = joined(joined(t, TEXT(",\"cursor_value\":{\"type\":\"int64\",\"value\":")), number_text(last));
    t = joined(joined(t, TEXT("},\"records_processed\":")), number_text(rows));
    t = joined(joined(joined(t, TEXT(",\"bytes_processed\":")), number_text(bytes)), TEXT("}"));
    checkpoint(0, t.p, t.n, r);
    return has_failed();
}

// run reads one stream. The context is JSON: stream_name, sync_mode, cursor_info, and more.
EXPORT("run") void *run(u64 session, u32 phase, const char *p, u32 n, u32 is_dry, u32 has_max, u64 max) {
    text context = {p, n}, last = json_value(context, TEXT("last_value"));
    i64 from = last.p ? json_number(last, TEXT("value"), 0) : 0, to = json_number(config, TEXT("rows"), 1000);
    u64 rows = 0, bytes = 0, batches = 0;
    if (to < from) to = from;
    if (has_max && max < (u64)(to - from)) to = from + max;
    for (u8 *mark = top; from < to; top = mark) {
        u32 count = to - from < ROWS_A_BATCH ? to - from : ROWS_A_BATCH;
        i64 *id = take(8 * count), *read_at = take(8 * count);
        double *celsius = take(8 * count);
        text *sensor = take(sizeof(text) * count);
        u8 *is_broken = take(count);
        for (u32 i = 0; i < count; i++) {
            id[i] = from + i + 1;
            sensor[i] = joined(TEXT("sensor-"), number_text(id[i] % 8));
            celsius[i] = id[i] % 40 + 0.5;
            is_broken[i] = id[i] % 10 == 0;
            read_at[i] = 1767225600000000 + id[i] * 1000000;  // microseconds since 1970
        }
        column columns[] = {{"id", INT64, id}, {"sensor", UTF8, sensor}, {"celsius", FLOAT64, celsius, is_broken},
                            {"read_at", TIMESTAMP_MICROS, read_at}};
        if (emit_rows(columns, 4, count, &bytes)) return answer_host_error();
        from += count, rows += count, batches++;
        if (take_checkpoint(batches, from, rows, bytes)) return answer_host_error();
    }
    return answer_read(rows, bytes, batches, batches);
}

// close is called whatever happened. There is nothing to give back here.
EXPORT("close") void *close_(u64 session) { return answer_nothing(); }
