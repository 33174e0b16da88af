// Two streams. `rows` makes batches of about a megabyte, row by row: what a compiled connector does. `frames` hands over the
// same megabyte again and again, which is no Arrow: nothing but transport. Config: batches, of each stream.
#include "arrow.h"

enum { ROWS_A_BATCH = 7000 };
static text config;

EXPORT("open") void *open_(const char *p, u32 n) { config = (text){p, n}; return answer_number(1); }
EXPORT("validate") void *validate(u64 session) { return answer_validation(0, TEXT("")); }
EXPORT("close") void *close_(u64 session) { return answer_nothing(); }

#define COLUMNS "\"schema\": {\"format\": \"columns\", \"data\": [" \
    "{\"name\": \"id\", \"data_type\": \"Int64\"}, {\"name\": \"name\", \"data_type\": \"Utf8\"}," \
    "{\"name\": \"email\", \"data_type\": \"Utf8\"}, {\"name\": \"amount\", \"data_type\": \"Float64\"}," \
    "{\"name\": \"quantity\", \"data_type\": \"Int64\"}, {\"name\": \"created_at\", \"data_type\": \"TimestampMicros\"}," \
    "{\"name\": \"updated_at\", \"data_type\": \"TimestampMicros\"}, {\"name\": \"note\", \"data_type\": \"Utf8\"}]}," \
    "\"supported_sync_modes\": [\"full_refresh\", \"incremental\"], \"source_defined_cursor\": \"id\"}"
EXPORT("discover") void *discover(u64 session) {
    return answer_text(TEXT("{\"streams\": [{\"name\": \"rows\", " COLUMNS ", {\"name\": \"frames\", " COLUMNS "]}"));
}

static const column *rows_from(i64 first) {
    i64 *id = take(8 * ROWS_A_BATCH), *quantity = take(8 * ROWS_A_BATCH), *created = take(8 * ROWS_A_BATCH);
    i64 *updated = take(8 * ROWS_A_BATCH);
    double *amount = take(8 * ROWS_A_BATCH);
    text *name = take(sizeof(text) * ROWS_A_BATCH), *email = take(sizeof(text) * ROWS_A_BATCH);
    text *note = take(sizeof(text) * ROWS_A_BATCH);
    u8 *has_none = take(ROWS_A_BATCH);
    for (u32 i = 0; i < ROWS_A_BATCH; i++) {
        id[i] = first + i;
        text digits = number_text(id[i]);
        name[i] = joined(TEXT("name "), digits);
        email[i] = joined(joined(TEXT("user"), digits), TEXT("@example.com"));
        amount[i] = (id[i] * 37 % 1000007) * 0.25;
        quantity[i] = id[i] % 1000;
        created[i] = 1600000000000000 + id[i] * 1000003;
        updated[i] = 1700000000000000 + id[i] * 1000000;
        has_none[i] = id[i] % 10 == 0;
        note[i] = joined(joined(TEXT("a note of some words, which differ by "), digits), TEXT(" and end"));
    }
    column *all = take(8 * sizeof(column));
    all[0] = (column){"id", INT64, id};
    all[1] = (column){"name", UTF8, name};
    all[2] = (column){"email", UTF8, email};
    all[3] = (column){"amount", FLOAT64, amount};
    all[4] = (column){"quantity", INT64, quantity};
    all[5] = (column){"created_at", TIMESTAMP_MICROS, created};
    all[6] = (column){"updated_at", TIMESTAMP_MICROS, updated};
    all[7] = (column){"note", UTF8, note, has_none};
    return all;
}

static void take_checkpoint(u64 number, i64 last) {
    text t = joined(TEXT("{\"kind\":\"source\",\"stream\":\"rows\",\"cursor_field\":\"id\",\"id\":"), number_text(number));
    t = joined(joined(t, TEXT(",\"cursor_value\":{\"type\":\"int64\",\"value\":")), number_text(last));
    t = joined(t, TEXT("}}"));
    checkpoint(0, t.p, t.n, r);
}

EXPORT("run") void *run(u64 session, u32 phase, const char *p, u32 n, u32 is_dry, u32 has_max, u64 max) {
    u64 batches = json_number(config, TEXT("batches"), 1), bytes = 0;
    text stream = json_text((text){p, n}, TEXT("stream_name"));
    u32 is_raw = stream.n && *stream.p == 'f';
    u8 *mark = top;
    if (is_raw) {
        const u32 size = 1 << 20;
        u8 *content = take(size);
        for (u64 i = 0; i < batches; i++) {
            frame_new(size, r);
            u64 frame = r[1];
            frame_write(frame, content, size, r);
            frame_seal(frame, r);
            emit_batch(frame, r);
            if (has_failed()) return answer_host_error();
        }
        return answer_read(0, batches * size, batches, 0);
    }
    i64 from = 1;
    for (u64 i = 0; i < batches; i++, from += ROWS_A_BATCH, top = mark) {
        if (emit_rows(rows_from(from), 8, ROWS_A_BATCH, &bytes)) return answer_host_error();
        if (i % 100 == 99 || i == batches - 1) take_checkpoint(i + 1, from + ROWS_A_BATCH - 1);
        if (has_failed()) return answer_host_error();
    }
    return answer_read(batches * ROWS_A_BATCH, bytes, batches, 0);
}
