// A source for tests, in freestanding C, that tries by WASI to get at what it was not granted: what `try` in its config
// names. Each attempt that ends is logged.
#include "guest.h"

#define WASI(name) __attribute__((import_module("files"), import_name(name)))
WASI("get-environment") void get_environment(void *ret);
WASI("get-directories") void get_directories(void *ret);
WASI("open-at") void open_at(u32 self, u32 path_flags, const char *p, u32 n, u32 open_flags, u32 flags, void *ret);
WASI("subscribe-duration") u32 subscribe_duration(u64 nanoseconds);
WASI("block") void block(u32 pollable);
WASI("get-stdin") u32 get_stdin(void);
WASI("get-stdout") u32 get_stdout(void);
WASI("take-in") void take_in(u32 stream, u64 n, void *ret);
WASI("put-out") void put_out(u32 stream, const void *p, u32 n, void *ret);
WASI("instance-network") u32 instance_network(void);
WASI("create-tcp-socket") void create_tcp_socket(u32 family, void *ret);
WASI("start-connect") void start_connect(u32 self, u32 network, u32 family, u32 port, u32 a, u32 b, u32 c, u32 d, u32 e, u32 f,
                                         u32 g, u32 h, u32 i, u32 j, void *ret);
enum { FOLLOW_LINKS = 1, READ = 1 };

EXPORT("open") void *open_(const char *p, u32 n) { config = (text){p, n}; return answer_number(1); }
EXPORT("discover") void *discover(u64 session) { return answer_text(TEXT("{\"streams\": []}")); }
EXPORT("validate") void *validate(u64 session) { return answer_validation(0, TEXT("fine")); }
EXPORT("close") void *close_(u64 session) { return answer_nothing(); }

static void say(text a, text b) { a = joined(a, b); log_text(2, a.p, a.n); }
static text part(u32 *pair) { return (text){(char *)pair[0], pair[1]}; }

static void look_at_variables(void) {
    get_environment(r);
    u32 *pairs = (u32 *)*(u32 *)r, n = *((u32 *)r + 1);
    for (u32 i = 0; i < n; i++) say(joined(part(pairs + 4 * i), TEXT("=")), part(pairs + 4 * i + 2));
}
static void open_files(text paths) {  // with ";" between them
    get_directories(r);
    u32 folder = *(u32 *)*(u32 *)r, n = *((u32 *)r + 1);
    say(TEXT("folders "), number_text(n));
    while (n && paths.n) {
        text path = word(&paths, ';');
        open_at(folder, FOLLOW_LINKS, path.p, path.n, 0, READ, r);
        say(path, *(u8 *)r ? TEXT(" refused") : TEXT(" opened"));
    }
}
static void connect_to(u32 port) {
    create_tcp_socket(0, r);
    if (*(u8 *)r) { say(TEXT("socket refused "), number_text(*((u8 *)r + 4))); return; }
    start_connect(*((u32 *)r + 1), instance_network(), 0, port, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, r);
    if (*(u8 *)r) say(TEXT("connect refused "), number_text(*((u8 *)r + 1)));
    else say(TEXT("connect begun"), TEXT(""));
}
static void forge(text digits) {
    u8 *p = scratch(digits.n);
    for (u32 i = 0; i + 1 < digits.n; i += 2) {
        u8 v = 0;
        for (u32 k = 0; k < 2; k++) { char c = digits.p[i + k]; v = v << 4 | (c <= '9' ? c - '0' : c - 'a' + 10); }
        p[i / 2] = v;
    }
    for (u32 times = 0; times < 100; times++) put_out(get_stdout(), p, digits.n / 2, r);
}

EXPORT("run") void *run(u64 session, u32 phase, const char *p, u32 n, u32 dry, u32 has_max, u64 max) {
    text what = member(config, TEXT("try"));
    if (same(what, TEXT("variables"))) look_at_variables();
    else if (same(what, TEXT("files"))) open_files(member(config, TEXT("paths")));
    else if (same(what, TEXT("handle"))) open_at(7, FOLLOW_LINKS, "x", 1, 0, READ, r);
    else if (same(what, TEXT("network"))) connect_to(number(member(config, TEXT("port"))));
    else if (same(what, TEXT("sleep"))) block(subscribe_duration(600000000000));
    else if (same(what, TEXT("stdin"))) take_in(get_stdin(), 100, r);
    else if (same(what, TEXT("forge"))) forge(member(config, TEXT("forged")));
    return answer_read(0, 0, 0, 0);
}
