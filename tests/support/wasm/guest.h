// What the guests of C have beyond the header that new connectors begin with: values of a config, and words of a script.
#include "rapidbyte.h"

static int same(text a, text b) { return a.n == b.n && !__builtin_memcmp(a.p, b.p, a.n); }
int memcmp(const void *a, const void *b, unsigned long n) {
    const u8 *x = a, *y = b;
    for (; n; n--, x++, y++) if (*x != *y) return *x - *y;
    return 0;
}
static void *scratch(u32 n) { return cabi_realloc(0, 0, 8, n); }  // not cleared
static u64 number(text t) { u64 v = 0; for (u32 i = 0; i < t.n; i++) v = v * 10 + (t.p[i] - '0'); return v; }
// The value of a key of the config: a JSON string without its escapes, or an object as it is written.
static text member(text config, text key) {
    text t = after(config, joined(joined(TEXT("\""), key), TEXT("\": ")));
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
// A field of a table in a flatbuffer; 0 if it has none.
static u8 *field(u8 *table, u32 id) {
    u8 *vtable = table - *(int *)table;
    u32 at = 4 + 2 * id;
    if (at >= *(unsigned short *)vtable) return 0;
    u32 offset = *(unsigned short *)(vtable + at);
    return offset ? table + offset : 0;
}
