// A destination for tests, in freestanding C: it writes the Arrow batches that it gets into a file of the first folder
// that it was granted, and takes a checkpoint after so many rows. Each run has a file of its own: 0.arrow, 1.arrow, …
//
// Config: keeps ("yes": it keeps its rows in each scope, and says what it kept before); commit_rows; metric (sent for
// each batch); failed (rows that it says failed); record (a record that it rejects, shown as it stands);
// fault (error, trap, spin, chat: it logs without end, silent: no checkpoints, liar: a checkpoint of too many rows,
// leave: it ends well, and takes no more), at the row fault_at, and only the first time if `once` is "yes"; category,
// scope, retryable, safe, backoff, commit, retry_after (milliseconds): those of its error.
#include "guest.h"

#define FILES(name) __attribute__((import_module("files"), import_name(name)))
FILES("get-directories") void get_directories(void *ret);
FILES("open-at") void open_at(u32 self, u32 path_flags, const char *p, u32 n, u32 open_flags, u32 flags, void *ret);
FILES("write") void write_at(u32 self, const void *p, u32 n, u64 offset, void *ret);
FILES("sync-data") void sync_data(u32 self, void *ret);
enum { CREATE = 1, EXCLUSIVE = 4, WRITE = 2, MUTATE = 32 };

static u64 value(text key) { text t = member(config, key); return t.p ? number(t) : 0; }
static int says(text key, text what) { return same(member(config, key), what); }

static void *told_error(void) {
    failed();
    u8 *b = (u8 *)ret;
    b[8] = value(TEXT("category")); b[9] = value(TEXT("scope"));
    b[28] = value(TEXT("retryable")); b[48] = value(TEXT("backoff")); b[49] = value(TEXT("safe"));
    b[32] = member(config, TEXT("retry_after")).p != 0;
    *(u64 *)(b + 40) = value(TEXT("retry_after"));
    text commit = member(config, TEXT("commit"));
    b[50] = commit.p != 0;
    b[51] = commit.p ? number(commit) : 0;
    return ret;
}

EXPORT("open") void *open_(const char *p, u32 n) { config = (text){p, n}; ret[0] = 0; ret[1] = 1; return ret; }
EXPORT("validate") void *validate(u64 session) {
    u8 *b = (u8 *)ret;
    __builtin_memset(ret, 0, sizeof ret);
    b[8] = says(TEXT("validation"), TEXT("failed"));
    *(u32 *)(b + 12) = (u32)"it looked"; *(u32 *)(b + 16) = 9;
    return ret;
}
EXPORT("close") void *close_(u64 session) { ret[0] = 0; return ret; }

static u32 directory(void) {
    get_directories(r);
    u8 *b = (u8 *)r;
    if (!*(u32 *)(b + 4)) __builtin_trap();
    return *(u32 *)*(u32 *)b;
}
static int created(u32 folder, text name, u32 *file) {
    open_at(folder, 0, name.p, name.n, CREATE | EXCLUSIVE, WRITE, r);
    *file = *(u32 *)((u8 *)r + 4);
    return !*(u8 *)r;
}
// The rows of a stream of Arrow's IPC format: the lengths of its record batches, out of their flatbuffers.
static u64 rows_of(u8 *p, u64 n) {
    u64 rows = 0, at = 0;
    while (at + 8 <= n && *(u32 *)(p + at) == 0xffffffffu) {
        u32 size = *(u32 *)(p + at + 4);
        if (!size) break;
        u8 *message = p + at + 8;
        message += *(u32 *)message;
        u8 *kind = field(message, 1), *header = field(message, 2), *body = field(message, 3);
        if (kind && *kind == 3) {
            u8 *batch = header + *(u32 *)header, *length = field(batch, 0);
            rows += length ? *(u64 *)length : 0;
        }
        at += 8 + size + (body ? *(u64 *)body : 0);
    }
    return rows;
}

static u64 checkpoints;
static int check_in(u64 rows, u64 size) {
    text t = TEXT("{\"kind\":\"destination\",\"stream\":\"s\",\"id\":");
    t = joined(joined(t, number_text(++checkpoints)), TEXT(",\"records_processed\":"));
    t = joined(joined(t, number_text(rows)), TEXT(",\"bytes_processed\":"));
    t = joined(joined(t, number_text(size)), TEXT("}"));
    checkpoint(1, t.p, t.n, r);
    if (!*(u8 *)r) return 1;
    log_text(1, (char *)*(u32 *)((u8 *)r + 12), *(u32 *)((u8 *)r + 16));
    return 0;
}

static void keep(u32 scope, u64 rows) {
    text t = number_text(rows);
    state_put(scope, "rows", 4, t.p, t.n, r);
}

EXPORT("run") void *run(u64 session, u32 phase, const char *ctx, u32 ctx_n, u32 dry, u32 has_max, u64 max) {
    u32 folder = directory(), file = 0;
    for (u64 number = 0; !created(folder, joined(number_text(number), TEXT(".arrow")), &file); number++) {}
    u64 rows = 0, in = 0, size = 0, batches = 0, every = value(TEXT("commit_rows")), at = value(TEXT("fault_at"));
    text fault = member(config, TEXT("fault")), record = member(config, TEXT("record")), counted = member(config, TEXT("metric"));
    log_text(2, ctx, ctx_n);
    int keeps = says(TEXT("keeps"), TEXT("yes"));
    for (u32 scope = 0; keeps && scope < 3; scope++) {
        state_get(scope, "rows", 4, r);
        text told = joined(joined(TEXT("kept "), number_text(scope)), TEXT(" "));
        told = joined(told, ((u8 *)r)[8] ? (text){(char *)*(u32 *)((u8 *)r + 12), *(u32 *)((u8 *)r + 16)} : TEXT("none"));
        log_text(2, told.p, told.n);
    }
    u8 *mark = top;
    for (;;) {
        next_batch(r);
        u8 *b = (u8 *)r;
        if (b[0]) __builtin_trap();
        if (!b[8]) break;
        u64 handle = r[2];
        frame_len(handle, r);
        u64 length = r[1];
        frame_read(handle, 0, length, r);
        u8 *content = (u8 *)*(u32 *)((u8 *)r + 8);
        rows += rows_of(content, length);
        write_at(file, content, length, size, r);
        if (*(u8 *)r) __builtin_trap();
        size += length;
        batches++;
        frame_drop(handle);
        if (counted.p) metric(counted.p, counted.n, r);
        if (record.p) {
            emit_dlq_record("s", 1, record.p, record.n, "it has no home", 14, "data", 4, r);
            record.p = 0;
        }
        if (fault.p && rows >= at) {
            u32 made;
            if (!says(TEXT("once"), TEXT("yes")) || created(folder, TEXT("faulted"), &made)) {
                if (same(fault, TEXT("error"))) return told_error();
                if (same(fault, TEXT("trap"))) __builtin_trap();
                if (same(fault, TEXT("spin"))) for (;;) __asm__ volatile("");
                if (same(fault, TEXT("chat"))) for (;;) log_text(2, "x", 1);
                if (same(fault, TEXT("liar")) && !check_in(rows + 1, size)) return told_error();
                if (same(fault, TEXT("leave"))) break;
            }
        }
        if (every && rows - in >= every && !same(fault, TEXT("silent"))) {
            sync_data(file, r);
            if (keeps) for (u32 scope = 0; scope < 3; scope++) keep(scope, rows);
            if (!check_in(rows, size)) return told_error();
            in = rows;
        }
        top = mark;
    }
    u64 lost = value(TEXT("failed"));
    sync_data(file, r);
    if (!same(fault, TEXT("silent")) && !check_in(rows - lost, size)) return told_error();
    __builtin_memset(ret, 0, sizeof ret);
    u8 *b = (u8 *)ret;                              // run-summary at 8: write at 64
    b[8] = 1;
    b[64] = 1;
    u64 *t = (u64 *)(b + 72);
    t[0] = rows - lost; t[1] = size; t[2] = batches; t[3] = checkpoints; t[4] = lost;
    return ret;
}
