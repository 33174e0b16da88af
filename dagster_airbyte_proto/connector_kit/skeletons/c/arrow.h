// Rows as a stream of Arrow's IPC format: the schema, one batch, the end. Columns of integers, floats, times and text.
//
// The format's metadata are flatbuffers. Each field of a table gets eight bytes here, also a small one: so all of them
// are aligned, and a table needs no thought. `take` gives memory without gaps, so that what is written lies in order.
#pragma once
#include "rapidbyte.h"

enum kind { INT64, FLOAT64, TIMESTAMP_MICROS, UTF8 };
// `values` has eight bytes a row, or for UTF8 a `text`. `is_null` has a byte a row; 0 if no row is NULL.
typedef struct { const char *name; enum kind kind; const void *values; const u8 *is_null; } column;

static u8 *table(u32 fields) {
    u16 *sizes = take(4 + 2 * fields);
    u8 *t = take(8 + 8 * fields);
    sizes[0] = 4 + 2 * fields;
    sizes[1] = 8 + 8 * fields;
    for (u32 i = 0; i < fields; i++) sizes[2 + i] = 8 + 8 * i;
    *(int *)t = t - (u8 *)sizes;
    return t;
}
static u64 *field(u8 *table, u32 i) { return (u64 *)(table + 8 + 8 * i); }
static void point(void *from, u8 *to) { *(u32 *)from = to - (u8 *)from; }
static u8 *vector(u32 count, u32 size) {  // its items begin at + 4, eight bytes aligned
    u8 *v = (u8 *)take(8 + count * size) + 4;
    *(u32 *)v = count;
    return v;
}
static u8 *string(const char *s) {
    u32 n = 0;
    while (s[n]) n++;
    u8 *v = vector(n + 1, 1);
    *(u32 *)v = n;
    __builtin_memcpy(v + 4, s, n);
    return v;
}
static u8 *begin_message(u32 header, u64 body) {  // 1: a schema, 3: a batch
    u32 *prefix = take(16);
    u8 *message = table(4);
    prefix[0] = 0xffffffff;
    point(prefix + 2, message);
    *field(message, 0) = 4;  // version 5 of the metadata
    *field(message, 1) = header;
    *field(message, 3) = body;
    return message;
}
static void end_message(u8 *message) {
    u8 *prefix = message - *(int *)message - 16;
    ((u32 *)prefix)[1] = top - prefix - 8;
}
static void put_schema(const column *columns, u32 count) {
    static const u8 TYPES[] = {2, 3, 10, 5};  // Int, FloatingPoint, Timestamp, Utf8
    u8 *message = begin_message(1, 0), *schema = table(2);
    point(field(message, 2), schema);
    u8 *fields = vector(count, 4);
    point(field(schema, 1), fields);
    for (u32 i = 0; i < count; i++) {
        u8 *f = table(6);
        point(fields + 4 + 4 * i, f);
        *field(f, 1) = 1;  // it may be NULL
        *field(f, 2) = TYPES[columns[i].kind];
        point(field(f, 0), string(columns[i].name));
        u8 *type = table(columns[i].kind == UTF8 ? 0 : columns[i].kind == INT64 ? 2 : 1);
        point(field(f, 3), type);
        if (columns[i].kind == INT64) *field(type, 0) = 64, *field(type, 1) = 1;
        if (columns[i].kind == FLOAT64 || columns[i].kind == TIMESTAMP_MICROS) *field(type, 0) = 2;
        // A table without a dictionary leaves field 4 out; the children are an empty vector.
        ((u16 *)(f - *(int *)f))[2 + 4] = 0;
        point(field(f, 5), vector(0, 4));
    }
    end_message(message);
}
static u64 text_bytes(const column *c, u32 rows) {
    u64 n = 0;
    for (u32 i = 0; i < rows; i++) if (!c->is_null || !c->is_null[i]) n += ((const text *)c->values)[i].n;
    return n;
}
static void put_values(const column *c, u32 rows) {
    if (c->is_null) {
        u8 *valid = take((rows + 7) / 8);
        for (u32 i = 0; i < rows; i++) if (!c->is_null[i]) valid[i / 8] |= 1 << i % 8;
    }
    if (c->kind != UTF8) { __builtin_memcpy(take(8 * rows), c->values, 8 * rows); return; }
    u32 *offsets = take(4 * (rows + 1)), at = 0;
    u8 *bytes = take(text_bytes(c, rows));
    for (u32 i = 0; i < rows; i++) {
        const text *t = (const text *)c->values + i;
        if (!c->is_null || !c->is_null[i]) __builtin_memcpy(bytes + at, t->p, t->n), at += t->n;
        offsets[i + 1] = at;
    }
}
static u64 padded(u64 n) { return (n + 7) & ~7ull; }
static void put_rows(const column *columns, u32 count, u32 rows) {
    u32 buffers_count = 0;
    for (u32 i = 0; i < count; i++) buffers_count += columns[i].kind == UTF8 ? 3 : 2;
    u8 *message = begin_message(3, 0), *batch = table(3);
    point(field(message, 2), batch);
    *field(batch, 0) = rows;
    u8 *nodes = vector(count, 16), *buffers;
    point(field(batch, 1), nodes);
    buffers = vector(buffers_count, 16);
    point(field(batch, 2), buffers);
    u64 *node = (u64 *)(nodes + 4), *buffer = (u64 *)(buffers + 4), at = 0;
    for (u32 i = 0; i < count; i++) {
        const column *c = columns + i;
        *node++ = rows;
        u64 nulls = 0;
        for (u32 k = 0; c->is_null && k < rows; k++) nulls += c->is_null[k] != 0;
        *node++ = nulls;
        u64 sizes[3] = {c->is_null ? (rows + 7) / 8 : 0, c->kind == UTF8 ? 4ull * (rows + 1) : 8ull * rows, 0};
        if (c->kind == UTF8) sizes[2] = text_bytes(c, rows);
        for (u32 k = 0; k < (c->kind == UTF8 ? 3 : 2); k++) *buffer++ = at, *buffer++ = sizes[k], at += padded(sizes[k]);
    }
    *field(message, 3) = at;
    end_message(message);
    for (u32 i = 0; i < count; i++) put_values(columns + i, rows);
}
// Hands a batch over to the host. 0 if all went well, or the error of the host is in `r`. `bytes` grows by its size.
static u32 emit_rows(const column *columns, u32 count, u32 rows, u64 *bytes) {
    top = (u8 *)(((u32)top + 7) & ~7u);
    u8 *begin = top;
    put_schema(columns, count);
    put_rows(columns, count, rows);
    *(u32 *)take(8) = 0xffffffff;
    u32 size = top - begin;
    frame_new(size, r);
    if (has_failed()) return 1;
    u64 frame = r[1];
    frame_write(frame, begin, size, r);
    if (has_failed()) return 1;
    frame_seal(frame, r);
    if (has_failed()) return 1;
    emit_batch(frame, r);
    *bytes += size;
    return has_failed();
}
