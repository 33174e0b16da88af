// What the guests of C have in common: the functions of the host, memory without libc, texts, and values of a config.
typedef unsigned char u8;
typedef unsigned u32;
typedef unsigned long long u64;
#define IMPORT(name) __attribute__((import_module("host"), import_name(name)))
#define EXPORT(name) __attribute__((export_name(name)))
IMPORT("emit-batch") void emit_batch(u64 handle, void *ret);
IMPORT("next-batch") void next_batch(void *ret);
IMPORT("log") void log_text(u32 level, const char *p, u32 n);
IMPORT("checkpoint") void checkpoint(u32 kind, const char *p, u32 n, void *ret);
IMPORT("metric") void metric(const char *p, u32 n, void *ret);
IMPORT("emit-dlq-record") void emit_dlq(const char *s, u32 sn, const char *r, u32 rn, const char *m, u32 mn, const char *c, u32 cn, void *ret);
IMPORT("state-get") void state_get(u32 scope, const char *k, u32 kn, void *ret);
IMPORT("state-put") void state_put(u32 scope, const char *k, u32 kn, const char *v, u32 vn, void *ret);
IMPORT("state-cas") void state_cas(u32 scope, const char *k, u32 kn, u32 some, const char *e, u32 en, const char *v, u32 vn, void *ret);
IMPORT("frame-new") void frame_new(u64 capacity, void *ret);
IMPORT("frame-write") void frame_write(u64 handle, const void *p, u32 n, void *ret);
IMPORT("frame-seal") void frame_seal(u64 handle, void *ret);
IMPORT("frame-len") void frame_len(u64 handle, void *ret);
IMPORT("frame-read") void frame_read(u64 handle, u64 offset, u64 len, void *ret);
IMPORT("frame-drop") void frame_drop(u64 handle);
IMPORT("connect-tcp") void connect_tcp(const char *h, u32 hn, u32 port, void *ret);
IMPORT("socket-read") void socket_read(u64 handle, u64 len, void *ret);
IMPORT("socket-write") void socket_write(u64 handle, const void *p, u32 n, void *ret);
IMPORT("socket-close") void socket_close(u64 handle);

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

typedef struct { const char *p; u32 n; } text;
#define TEXT(s) ((text){s, sizeof(s) - 1})
static int same(text a, text b) { return a.n == b.n && !__builtin_memcmp(a.p, b.p, a.n); }
int memcmp(const void *a, const void *b, unsigned long n) {
    const u8 *x = a, *y = b;
    for (; n; n--, x++, y++) if (*x != *y) return *x - *y;
    return 0;
}
static text find(text in, text what) {              // what follows, or nothing
    for (u32 i = 0; i + what.n <= in.n; i++)
        if (!__builtin_memcmp(in.p + i, what.p, what.n)) return (text){in.p + i + what.n, in.n - i - what.n};
    return (text){0, 0};
}
static char *scratch(u32 n) { return cabi_realloc(0, 0, 8, n); }
static text joined(text a, text b) {
    char *p = scratch(a.n + b.n);
    __builtin_memcpy(p, a.p, a.n);
    __builtin_memcpy(p + a.n, b.p, b.n);
    return (text){p, a.n + b.n};
}
static text number_text(u64 v) {
    char *p = scratch(24) + 24;
    u32 n = 0;
    do { *--p = '0' + v % 10; v /= 10; n++; } while (v);
    return (text){p, n};
}
static u64 number(text t) { u64 v = 0; for (u32 i = 0; i < t.n; i++) v = v * 10 + (t.p[i] - '0'); return v; }
// The value of a key of the config: a JSON string without its escapes, or an object as it is written.
static text member(text config, text key) {
    text t = find(config, joined(joined(TEXT("\""), key), TEXT("\": ")));
    if (!t.p) return t;
    if (*t.p == '{') {
        u32 depth = 0, n = 0;
        do { depth += t.p[n] == '{'; depth -= t.p[n] == '}'; n++; } while (depth);
        return (text){t.p, n};
    }
    char *p = scratch(t.n);
    u32 n = 0;
    for (u32 i = 1; t.p[i] != '"'; i++) { if (t.p[i] == '\\') i++; p[n++] = t.p[i]; }
    return (text){p, n};
}
static text word(text *rest, char end) {
    text found = {rest->p, 0};
    while (found.n < rest->n && rest->p[found.n] != end) found.n++;
    u32 used = found.n + (found.n < rest->n);
    rest->p += used;
    rest->n -= used;
    return found;
}

static text config;
static u64 ret[64], r[64];
static const text CATEGORIES[] = {TEXT("config"), TEXT("auth"), TEXT("permission"), TEXT("rate-limit"), TEXT("transient-network"),
                                  TEXT("transient-db"), TEXT("data"), TEXT("schema"), TEXT("internal"), TEXT("frame")};

static void *failed(void) {                         // an error with every field filled
    u8 *b = (u8 *)ret;
    __builtin_memset(ret, 0, sizeof ret);
    b[0] = 1;                                       // connector-error at 8
    b[8] = 3; b[9] = 1;
    text code = member(config, TEXT("error_code"));
    if (!code.p) code = TEXT("BOOM");
    *(u32 *)(b + 12) = (u32)code.p; *(u32 *)(b + 16) = code.n;
    *(u32 *)(b + 20) = (u32)"d\xc3\xa9j\xc3\xa0 vu"; *(u32 *)(b + 24) = 9;
    b[28] = 1; b[32] = 1; ret[5] = 1234; b[48] = 2; b[49] = 1; b[50] = 1; b[51] = 1;
    b[52] = 1; *(u32 *)(b + 56) = (u32)"{\"k\":1}"; *(u32 *)(b + 60) = 7;
    return ret;
}
static int is_told(text what) { return same(member(config, TEXT("fail")), what); }
static void *answer_text(text t) {
    __builtin_memset(ret, 0, sizeof ret);
    *(u32 *)((u8 *)ret + 8) = (u32)t.p; *(u32 *)((u8 *)ret + 12) = t.n;
    return ret;
}
// A field of a table in a flatbuffer; 0 if it has none.
static u8 *field(u8 *table, u32 id) {
    u8 *vtable = table - *(int *)table;
    u32 at = 4 + 2 * id;
    if (at >= *(unsigned short *)vtable) return 0;
    u32 offset = *(unsigned short *)(vtable + at);
    return offset ? table + offset : 0;
}
