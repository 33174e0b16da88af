// A connector for tests, in freestanding C: it does what the script in its config says, and logs how each call went.
// The canonical ABI is written by hand: no libc, no WASI, no WIT tools.
//
// A script is a list of calls with ";" between them. With "?" before it a call is made only if the context has a
// last_value, with "!" only if it has none. A connector runs the script under the name script_STREAM, or script.
#include "guest.h"

static u32 opens;
EXPORT("open") void *open_(const char *p, u32 n) {
    config = (text){p, n};
    opens++;
    if (is_told(TEXT("open"))) return failed();
    ret[0] = 0; ret[1] = 7;
    return ret;
}
EXPORT("validate") void *validate(u64 session) {
    if (is_told(TEXT("validate"))) return failed();
    text said = member(config, TEXT("validation"));
    u8 *b = (u8 *)ret;
    __builtin_memset(ret, 0, sizeof ret);
    b[8] = same(said, TEXT("failed")) ? 1 : same(said, TEXT("warning")) ? 2 : 0;
    *(u32 *)(b + 12) = (u32)"fine"; *(u32 *)(b + 16) = 4;
    static text warnings[] = {TEXT("one"), TEXT("two")};
    *(u32 *)(b + 20) = (u32)warnings; *(u32 *)(b + 24) = b[8] == 2 ? 2 : 0;
    return ret;
}
EXPORT("close") void *close_(u64 session) {
    log_text(2, "closed", 6);
    ret[0] = 0;
    return ret;
}
#ifdef SOURCE
EXPORT("discover") void *discover(u64 session) {
    if (is_told(TEXT("discover"))) return failed();
    return answer_text(member(config, TEXT("catalog")));
}
#endif

static volatile u32 sink;
static u32 is_dry, has_limit;
static u64 limit;
__attribute__((noinline)) static u32 recurse(u32 n) { volatile u32 here[64]; here[n & 63] = n; return recurse(n + 1) + here[(n + 1) & 63]; }
static void say(text op, text what) {
    text all = joined(joined(op, TEXT(" ")), what);
    log_text(2, all.p, all.n);
}
static int went_wrong(text op) {                    // logs the error that lies in r, if one does
    u8 *b = (u8 *)r;
    if (!b[0]) return 0;
    text code = {(char *)*(u32 *)(b + 12), *(u32 *)(b + 16)};
    text flags = joined(b[28] ? TEXT(" retryable") : TEXT(""), b[49] ? TEXT(" safe") : TEXT(""));
    say(op, joined(joined(joined(TEXT("error "), CATEGORIES[b[8]]), joined(TEXT("/"), code)), flags));
    return 1;
}
static text of_result(u32 at) { return (text){(char *)*(u32 *)((u8 *)r + at), *(u32 *)((u8 *)r + at + 4)}; }
static u32 hex(text t, u8 *out) {
    for (u32 i = 0; i + 1 < t.n; i += 2) {
        u8 v = 0;
        for (u32 k = 0; k < 2; k++) { char c = t.p[i + k]; v = v << 4 | (c <= '9' ? c - '0' : c - 'a' + 10); }
        out[i / 2] = v;
    }
    return t.n / 2;
}
static u64 batches, bytes;
static void ipc(text op, text name) {               // a whole batch, of Arrow bytes that the config has as hex
    text t = member(config, name);
    u8 *p = (u8 *)scratch(t.n);
    u32 n = hex(t, p);
    frame_new(n, r); if (went_wrong(op)) return;
    u64 h = r[1];
    frame_write(h, p, n, r); if (went_wrong(op)) return;
    frame_seal(h, r); if (went_wrong(op)) return;
    emit_batch(h, r); if (went_wrong(op)) return;
    batches++; bytes += n;
}
static text partition(text context) {               // the digits of its partition's index, or nothing
    text t = after(context, TEXT("\"partition_index\":"));
    u32 n = 0;
    while (t.p && n < t.n && t.p[n] >= '0' && t.p[n] <= '9') n++;
    return (text){t.p, n};
}
static void flood(u64 times, u64 size) {            // batches of nothing but size, for speed
    u8 *p = (u8 *)scratch(size);
    for (u64 i = 0; i < times; i++) {
        frame_new(size, r); u64 h = r[1];
        frame_write(h, p, size, r); frame_seal(h, r); emit_batch(h, r);
        batches++; bytes += size;
    }
}
static int is_letter(u8 c) { return c >= 'a' && c <= 'z'; }
static u64 letters(u8 *p, u64 n) {                    // how many letters stand together
    u64 i = 0;
    while (i < n && is_letter(p[i])) i++;
    return i;
}
static void upper(u8 *p, u64 n) {                   // words in the values of a stream of Arrow's IPC format: a byte or
                                                    // two that look like letters may be of a number or a time
    for (u64 at = 0; at + 8 <= n && *(u32 *)(p + at) == 0xffffffffu && *(u32 *)(p + at + 4);) {
        u32 size = *(u32 *)(p + at + 4);
        u8 *message = p + at + 8;
        u8 *body = field(message + *(u32 *)message, 3);
        u64 length = body ? *(u64 *)body : 0;
        at += 8 + size;
        for (u64 i = at; i < at + length;) {
            u64 end = i + letters(p + i, at + length - i), is_word = end - i > 2;
            for (; i < end; i++) if (is_word) p[i] -= 32;
            i++;
        }
        at += length;
    }
}
static u64 rows(u8 *p, u64 n) {                     // the rows in a stream of Arrow's IPC format
    u64 found = 0;
    for (u64 at = 0; at + 8 <= n && *(u32 *)(p + at) == 0xffffffffu && *(u32 *)(p + at + 4);) {
        u8 *message = p + at + 8;
        message += *(u32 *)message;
        u8 *kind = field(message, 1), *header = field(message, 2), *body = field(message, 3);
        if (kind && header && *kind == 3) {
            u8 *length = field(header + *(u32 *)header, 0);
            found += length ? *(u64 *)length : 0;
        }
        at += 8 + *(u32 *)(p + at + 4) + (body ? *(u64 *)body : 0);
    }
    return found;
}
static u8 *in;                                      // the batch that came last
static u64 in_n;
static int next_in(text op) {                       // takes the next batch, if one comes
    next_batch(r);
    if (went_wrong(op) || !((u8 *)r)[8]) return 0;
    u64 h = r[2];
    frame_len(h, r);
    in_n = r[1];
    frame_read(h, 0, in_n, r);
    in = (u8 *)*(u32 *)((u8 *)r + 8);
    frame_drop(h);
    return 1;
}
static u64 as_frame(void) {                         // the batch, as a frame that can be emitted
    frame_new(in_n, r);
    u64 h = r[1];
    frame_write(h, in, in_n, r);
    frame_seal(h, r);
    return h;
}
static int keep_count(text op, u64 n) {             // as a value, and by a checkpoint
    text t = number_text(n);
    state_put(1, "rows", 4, t.p, t.n, r);
    text said = joined(joined(TEXT("{\"cursor_field\":\"rows\",\"cursor_value\":{\"type\":\"int64\",\"value\":"), t), TEXT("}}"));
    checkpoint(2, said.p, said.n, r);
    return !went_wrong(op);
}
// Each batch as it comes, but something happens to the one of this number: it traps, spins or ends there, drops that batch,
// emits it again at its end ("twice"), or emits it and each later one only after the next has come ("keep").
// With "waver" it drops the second batch and keeps those from the number on.
static void pass(text op, text what, u64 nth) {
    u64 held = 0;
    u8 *before = top;
    for (u64 i = 1; next_in(op); i++, top = before) {
        int is_it = i == nth, wavers = same(what, TEXT("waver"));
        if (is_it && same(what, TEXT("trap"))) __builtin_trap();
        if (is_it && same(what, TEXT("spin"))) for (;;) sink++;
        if ((is_it && same(what, TEXT("drop"))) || (wavers && i == 2)) continue;
        u64 h = as_frame();
        if (i >= nth && (wavers || same(what, TEXT("keep")))) {
            if (held) emit_batch(held, r);
            held = h;
            continue;
        }
        emit_batch(h, r);
        if (is_it && same(what, TEXT("twice"))) held = as_frame();
        if (is_it && same(what, TEXT("end"))) return;
    }
    if (held) emit_batch(held, r);
}
static void one(text op, text a, text context) {
    text first = a, rest = a;
    if (same(op, TEXT("new"))) { frame_new(number(a), r); if (!went_wrong(op)) say(op, number_text(r[1])); }
    else if (same(op, TEXT("write"))) { first = word(&rest, ' '); frame_write(number(first), rest.p, rest.n, r); if (!went_wrong(op)) say(op, number_text(r[1])); }
    else if (same(op, TEXT("fill"))) {              // handle, times, bytes at a time
        u64 h = number(word(&rest, ' ')), times = number(word(&rest, ' '));
        u32 size = number(rest);
        u8 *p = (u8 *)scratch(size);
        for (; times; times--) { frame_write(h, p, size, r); if (went_wrong(op)) return; }
        say(op, number_text(r[1]));
    }
    else if (same(op, TEXT("seal"))) { frame_seal(number(a), r); if (!went_wrong(op)) say(op, TEXT("ok")); }
    else if (same(op, TEXT("len"))) { frame_len(number(a), r); if (!went_wrong(op)) say(op, number_text(r[1])); }
    else if (same(op, TEXT("read"))) {
        u64 h = number(word(&rest, ' ')), offset = number(word(&rest, ' '));
        frame_read(h, offset, number(rest), r); if (!went_wrong(op)) say(op, of_result(8));
    }
    else if (same(op, TEXT("drop"))) frame_drop(number(a));
    else if (same(op, TEXT("emit"))) { emit_batch(number(a), r); if (!went_wrong(op)) say(op, TEXT("ok")); }
    else if (same(op, TEXT("next"))) { next_batch(r); if (!went_wrong(op)) say(op, ((u8 *)r)[8] ? number_text(r[2]) : TEXT("none")); }
    else if (same(op, TEXT("log"))) { u32 level = number(word(&rest, ' ')); log_text(level, rest.p, rest.n); }
    else if (same(op, TEXT("checkpoint"))) { u32 kind = number(word(&rest, ' ')); checkpoint(kind, rest.p, rest.n, r); if (!went_wrong(op)) say(op, TEXT("ok")); }
    else if (same(op, TEXT("metric"))) { metric(a.p, a.n, r); if (!went_wrong(op)) say(op, TEXT("ok")); }
    else if (same(op, TEXT("dlq"))) {
        text s = word(&rest, ' '), record = word(&rest, ' '), message = word(&rest, ' ');
        emit_dlq_record(s.p, s.n, record.p, record.n, message.p, message.n, rest.p, rest.n, r); if (!went_wrong(op)) say(op, TEXT("ok"));
    }
    else if (same(op, TEXT("dlqs"))) { for (u64 n = number(a); n; n--) { emit_dlq_record("s", 1, "{}", 2, "m", 1, "data", 4, r); if (went_wrong(op)) return; } }
    else if (same(op, TEXT("get"))) { u32 scope = number(word(&rest, ' ')); state_get(scope, rest.p, rest.n, r); if (!went_wrong(op)) say(op, ((u8 *)r)[8] ? of_result(12) : TEXT("none")); }
    else if (same(op, TEXT("longkey"))) { u32 n = number(a); char *p = scratch(n); __builtin_memset(p, 'k', n); state_get(1, p, n, r); if (!went_wrong(op)) say(op, TEXT("ok")); }
    else if (same(op, TEXT("put"))) { u32 scope = number(word(&rest, ' ')); text k = word(&rest, ' '); state_put(scope, k.p, k.n, rest.p, rest.n, r); if (!went_wrong(op)) say(op, TEXT("ok")); }
    else if (same(op, TEXT("cas"))) {
        u32 scope = number(word(&rest, ' ')); text k = word(&rest, ' '), e = word(&rest, ' ');
        state_cas(scope, k.p, k.n, !same(e, TEXT("-")), e.p, e.n, rest.p, rest.n, r); if (!went_wrong(op)) say(op, ((u8 *)r)[8] ? TEXT("true") : TEXT("false"));
    }
    else if (same(op, TEXT("connect"))) { text host = word(&rest, ' '); connect_tcp(host.p, host.n, number(rest), r); if (!went_wrong(op)) say(op, number_text(r[1])); }
    else if (same(op, TEXT("recv"))) {              // until something comes
        u64 h = number(word(&rest, ' '));
        do { socket_read(h, number(rest), r); if (went_wrong(op)) return; } while (((u8 *)r)[8] == 2);
        say(op, ((u8 *)r)[8] ? TEXT("eof") : of_result(12));
    }
    else if (same(op, TEXT("peek"))) { socket_read(number(a), 9, r); if (!went_wrong(op)) say(op, ((u8 *)r)[8] == 2 ? TEXT("would-block") : TEXT("something")); }
    else if (same(op, TEXT("send"))) { u64 h = number(word(&rest, ' ')); socket_write(h, rest.p, rest.n, r); if (!went_wrong(op)) say(op, ((u8 *)r)[8] ? TEXT("would-block") : number_text(r[2])); }
    else if (same(op, TEXT("shutdown"))) socket_close(number(a));
    else if (same(op, TEXT("ipc"))) ipc(op, a);
    else if (same(op, TEXT("ipcpart"))) ipc(op, joined(a, partition(context)));
    else if (same(op, TEXT("putpart"))) { u32 scope = number(word(&rest, ' ')); text k = joined(word(&rest, ' '), partition(context)); state_put(scope, k.p, k.n, rest.p, rest.n, r); if (!went_wrong(op)) say(op, TEXT("ok")); }
    else if (same(op, TEXT("trappart"))) { if (same(a, partition(context))) __builtin_trap(); }
    else if (same(op, TEXT("spinpart"))) { if (same(a, partition(context))) for (;;) sink++; }
    else if (same(op, TEXT("logs"))) {              // so many words of 60 KiB
        char *p = scratch(60 << 10);
        __builtin_memset(p, 'x', 60 << 10);
        for (u64 n = number(a); n; n--) log_text(2, p, 60 << 10);
    }
    else if (same(op, TEXT("endless"))) {           // calls without a pause, and without an end
        int is_log = same(a, TEXT("log")), is_metric = same(a, TEXT("metric"));
        for (;;) { if (is_log) log_text(2, "x", 1); else if (is_metric) metric("{}", 2, r); else frame_drop(1); }
    }
    else if (same(op, TEXT("deep"))) {              // a checkpoint of lists in lists
        u32 n = number(a);
        char *p = scratch(2 * n + 6);
        __builtin_memcpy(p, "{\"a\":", 5);
        __builtin_memset(p + 5, '[', n);
        __builtin_memset(p + 5 + n, ']', n);
        p[5 + 2 * n] = '}';
        checkpoint(0, p, 2 * n + 6, r);
        if (!went_wrong(op)) say(op, TEXT("ok"));
    }
    else if (same(op, TEXT("upper"))) {             // each batch that comes, with its letters changed
        for (u8 *before = top; next_in(op); top = before) {
            upper(in, in_n);
            emit_batch(as_frame(), r);
        }
    }
    else if (same(op, TEXT("pass"))) pass(op, word(&rest, ' '), number(rest));
    else if (same(op, TEXT("tally"))) {             // each batch as it comes; keeps the rows so far, at the end or after "each"
        u64 so_far = 0;
        int is_each = same(a, TEXT("each"));
        state_get(1, "rows", 4, r);
        if (((u8 *)r)[8]) so_far = number(of_result(12));
        for (u8 *before = top; next_in(op); top = before) {
            so_far += rows(in, in_n);
            emit_batch(as_frame(), r);
            if (is_each && !keep_count(op, so_far)) return;
        }
        if (!is_each) keep_count(op, so_far);
    }
    else if (same(op, TEXT("flood"))) { u64 times = number(word(&rest, ' ')); flood(times, number(rest)); }
    else if (same(op, TEXT("context"))) say(op, context);
    else if (same(op, TEXT("limits"))) say(op, joined(is_dry ? TEXT("dry ") : TEXT(""), has_limit ? number_text(limit) : TEXT("none")));
    else if (same(op, TEXT("opens"))) say(op, number_text(opens));
    else if (same(op, TEXT("trap"))) __builtin_trap();
    else if (same(op, TEXT("spin"))) for (;;) sink++;
    else if (same(op, TEXT("recurse"))) sink = recurse(0);
    else if (same(op, TEXT("grow"))) say(op, __builtin_wasm_memory_grow(0, number(a)) == (u32)-1 ? TEXT("refused") : TEXT("ok"));
    else if (same(op, TEXT("eat"))) for (;;) scratch(1 << 20);
    else say(op, TEXT("is no call"));
}

// run: the session, then the flat run-request
EXPORT("run") void *run(u64 session, u32 phase, const char *ctx, u32 ctx_n, u32 dry, u32 has_max, u64 max) {
    u8 *mark = top;
    is_dry = dry; has_limit = has_max; limit = max;
    text context = {ctx, ctx_n}, name = after(context, TEXT("\"stream_name\":\"")), script;
    batches = bytes = 0;
    name = word(&name, '"');
    script = member(config, joined(TEXT("script_"), name));
    if (!script.p) script = member(config, TEXT("script"));
    int is_resumed = after(context, TEXT("\"last_value\"")).p != 0;
    while (script.n) {
        text line = word(&script, ';');
        if (line.n && (*line.p == '?' || *line.p == '!')) {
            if ((*line.p == '?') != is_resumed) continue;
            line.p++; line.n--;
        }
        text op = word(&line, ' ');
        if (same(op, TEXT("fail")) || (same(op, TEXT("failpart")) && same(line, partition(context)))) return failed();
        if (same(op, TEXT("failpart"))) continue;
        one(op, line, context);
    }
    if (!is_told(TEXT("free"))) (void)mark;
    __builtin_memset(ret, 0, sizeof ret);
    u8 *b = (u8 *)ret;                              // run-summary at 8: role, read 16..63, write 64..111, transform 112..159
    b[8] = ROLE;
    u32 at = ROLE == 0 ? 16 : ROLE == 1 ? 64 : 112;
    b[at] = 1;
    u64 *t = (u64 *)(b + at + 8);
    t[1] = bytes; t[2] = batches;
    return ret;
}
