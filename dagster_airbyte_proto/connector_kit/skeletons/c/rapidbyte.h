// The host of a Rapidbyte connector (rapidbyte:connector@4.0.0) for C without a libc: its functions, memory, texts.
//
// Calls go by the canonical ABI of components. A result that is no number is written where the last argument points:
// byte 0 says whether it is an error, and at byte 8 lies the value, or the error. Strings are a pointer and a length.
#pragma once
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned u32;
typedef unsigned long long u64;
typedef long long i64;
#define IMPORT(name) __attribute__((import_module("host"), import_name(name)))
#define EXPORT(name) __attribute__((export_name(name)))

// All that there is: a function that a connector does not call is not imported.
IMPORT("emit-batch") void emit_batch(u64 frame, void *result);
IMPORT("next-batch") void next_batch(void *result);  // byte 8: is there one; u64 at 16: its frame
IMPORT("log") void log_text(u32 level, const char *p, u32 n);  // 0 error, 1 warning, 2 info, 3 debug
IMPORT("checkpoint") void checkpoint(u32 kind, const char *p, u32 n, void *result);  // 0 source, 1 destination, 2 transform
IMPORT("metric") void metric(const char *p, u32 n, void *result);
IMPORT("emit-dlq-record") void emit_dlq_record(const char *stream, u32 stream_n, const char *record, u32 record_n,
                                               const char *reason, u32 reason_n, const char *category, u32 category_n, void *result);
IMPORT("state-get") void state_get(u32 scope, const char *key, u32 key_n, void *result);  // 0 pipeline, 1 stream, 2 instance
IMPORT("state-put") void state_put(u32 scope, const char *key, u32 key_n, const char *value, u32 value_n, void *result);
IMPORT("state-cas") void state_cas(u32 scope, const char *key, u32 key_n, u32 has_expected, const char *expected, u32 expected_n,
                                   const char *value, u32 value_n, void *result);
IMPORT("frame-new") void frame_new(u64 capacity, void *result);
IMPORT("frame-write") void frame_write(u64 frame, const void *p, u32 n, void *result);
IMPORT("frame-seal") void frame_seal(u64 frame, void *result);
IMPORT("frame-len") void frame_len(u64 frame, void *result);
IMPORT("frame-read") void frame_read(u64 frame, u64 offset, u64 length, void *result);
IMPORT("frame-drop") void frame_drop(u64 frame);
IMPORT("connect-tcp") void connect_tcp(const char *host, u32 host_n, u32 port, void *result);
IMPORT("socket-read") void socket_read(u64 socket, u64 length, void *result);  // byte 8: 0 data, 1 eof, 2 would block
IMPORT("socket-write") void socket_write(u64 socket, const void *p, u32 n, void *result);
IMPORT("socket-close") void socket_close(u64 socket);

// Memory grows at its end. `u8 *mark = top; … top = mark;` gives back what was taken between.
extern u8 __heap_base;
static u8 *top = &__heap_base;
EXPORT("cabi_realloc") void *cabi_realloc(void *old, u32 old_size, u32 align, u32 size) {
    u8 *p = (u8 *)(((u32)top + align - 1) & -align);
    u32 end = (u32)p + size, have = __builtin_wasm_memory_size(0) * 65536;
    if (end > have && __builtin_wasm_memory_grow(0, (end - have + 65535) >> 16) == (u32)-1) __builtin_trap();
    if (old) __builtin_memcpy(p, old, old_size < size ? old_size : size);
    top = (u8 *)end;
    return p;
}
static void *take(u32 n) { return __builtin_memset(cabi_realloc(0, 0, 8, (n + 7) & ~7u), 0, (n + 7) & ~7u); }

typedef struct { const char *p; u32 n; } text;
#define TEXT(s) ((text){s, sizeof(s) - 1})
static text joined(text a, text b) {
    char *p = take(a.n + b.n);
    __builtin_memcpy(p, a.p, a.n);
    __builtin_memcpy(p + a.n, b.p, b.n);
    return (text){p, a.n + b.n};
}
static text number_text(i64 v) {
    char *p = (char *)take(24) + 24, *end = p;
    u64 rest = v < 0 ? -(u64)v : (u64)v;
    do *--p = '0' + rest % 10; while (rest /= 10);
    if (v < 0) *--p = '-';
    return (text){p, end - p};
}
// Where `what` ends in `in`; p is 0 if it is not there.
static text after(text in, text what) {
    for (u32 i = 0; i + what.n <= in.n; i++) {
        u32 k = 0;
        while (k < what.n && in.p[i + k] == what.p[k]) k++;
        if (k == what.n) return (text){in.p + i + what.n, in.n - i - what.n};
    }
    return (text){0, 0};
}
// The value of the first member of this name, wherever it is nested: enough for a flat config. p is 0 if there is none.
static text json_value(text json, text name) {
    text rest = after(json, joined(joined(TEXT("\""), name), TEXT("\"")));
    while (rest.n && (*rest.p == ' ' || *rest.p == ':')) rest.p++, rest.n--;
    return rest;
}
static i64 json_number(text json, text name, i64 otherwise) {
    text t = json_value(json, name);
    u32 is_negative = t.n && *t.p == '-', i = is_negative;
    if (i >= t.n || t.p[i] < '0' || t.p[i] > '9') return otherwise;
    i64 v = 0;
    for (; i < t.n && t.p[i] >= '0' && t.p[i] <= '9'; i++) v = v * 10 + (t.p[i] - '0');
    return is_negative ? -v : v;
}
static text json_text(text json, text name) {  // as it is written: a text with escapes keeps them
    text t = json_value(json, name);
    if (!t.n || *t.p != '"') return (text){0, 0};
    u32 n = 1;
    while (n < t.n && t.p[n] != '"') n += t.p[n] == '\\' ? 2 : 1;
    return (text){t.p + 1, n - 1};
}

// `ret` is what an exported function returns, `r` what a function of the host wrote.
static u64 ret[24], r[24];
static u32 has_failed(void) { return *(u8 *)r; }
static void *answer_nothing(void) { ret[0] = 0; return ret; }
static void *answer_number(u64 v) { ret[0] = 0; ret[1] = v; return ret; }
static void *answer_text(text t) {
    ret[0] = 0;
    *(u32 *)&ret[1] = (u32)t.p;
    *((u32 *)&ret[1] + 1) = t.n;
    return ret;
}
static void *answer_validation(u32 status, text message) {  // 0 success, 1 failed, 2 warning
    __builtin_memset(ret, 0, sizeof ret);
    u8 *b = (u8 *)ret;
    b[8] = status;
    *(u32 *)(b + 12) = (u32)message.p;
    *(u32 *)(b + 16) = message.n;
    return ret;
}
// The error that the host gave back, on to whoever called us.
static void *answer_host_error(void) { return __builtin_memcpy(ret, r, sizeof ret); }

enum category { CONFIG, AUTH, PERMISSION, RATE_LIMIT, TRANSIENT_NETWORK, TRANSIENT_DB, DATA, SCHEMA, INTERNAL, FRAME };
// An error of our own, of the stream that runs. With `is_retryable` the call is made again, if it had no effect yet.
static void *answer_error(enum category category, text code, text message, u32 is_retryable) {
    __builtin_memset(ret, 0, sizeof ret);
    u8 *b = (u8 *)ret;
    b[0] = 1;
    b[8] = category;
    *(u32 *)(b + 12) = (u32)code.p; *(u32 *)(b + 16) = code.n;
    *(u32 *)(b + 20) = (u32)message.p; *(u32 *)(b + 24) = message.n;
    b[28] = b[49] = is_retryable;
    b[48] = 1;  // back off normally
    return ret;
}
// What a source's run returns.
static void *answer_read(u64 rows, u64 bytes, u64 batches, u64 checkpoints) {
    __builtin_memset(ret, 0, sizeof ret);
    u8 *b = (u8 *)ret;
    b[16] = 1;  // there is a summary of a read
    ret[3] = rows; ret[4] = bytes; ret[5] = batches; ret[6] = checkpoints;
    return ret;
}
