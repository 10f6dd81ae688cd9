// Runs kernels on a CPU: a block's threads are fibers that switch at barriers.
//
// Unspecified behaviour of a GPU is emulated in its extremes: shared memory is poisoned before a
// block; a warp runs to the next barrier before another warp starts, beginning with the first or the
// last warp, and blocks likewise; asynchronous copies complete immediately in some launches, and not
// before the wait in others, and products of warpgroups likewise. The blocks of a cluster run together. Bulk
// copies complete immediately, or when all threads wait, in their order or in another. A wait that can never
// end is a failure of an observed launch; it ends the process otherwise, as does a barrier that not all
// threads reach, an unaligned address, or a thread that ends without its wait for the launches before.
//
// Where launches overlap, what a block does before that wait is done before the launch before begins.
#include "portable.h"
#include "observe.h"
#include "clusters.h"
#include "sums.h"
#include <algorithm>
#include <deque>
#include <memory>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>
#include <vector>

namespace emulate {

constexpr unsigned MOST_THREADS = 1024;
constexpr size_t STACK = 64 << 10;
using observe::SHARED;
constexpr unsigned MOST_BLOCKS = observe::MOST_BLOCKS;

// A point in a fiber to go back to. The jumps of libc take longer than most steps between two barriers;
// those of the compiler save three registers.
#if defined(__GNUC__) && !defined(__clang__)
using Point = void* [5];
#define SAVE(point) __builtin_setjmp(point)
#define RESUME(point) __builtin_longjmp(point, 1)
#else
using Point = jmp_buf;
#define SAVE(point) _setjmp(point)
#define RESUME(point) _longjmp(point, 1)
#endif

// AtLaunch: at the wait for launches before.
enum class State : uint8_t { Ready, AtWarp, AtBlock, AtFirst, AtCluster, AtLaunch, Waiting, Done };
// Most clusters of a launch that begin before the launch before has ended: those that fit onto a small device.
constexpr unsigned MOST_EARLY = 24;

struct Copy {
    void* to;
    const void* from;
    bool real, made;

    void make() const {
        if (real) memcpy(to, from, 16);
        else memset(to, 0, 16);
    }
};

struct Fiber {
    Point at;
    bool begun = false;
    // True if it has waited for the launches before.
    bool waited = false;
    // Number of the next exchange of the warp.
    unsigned turn = 0;
    std::deque<std::vector<Copy>> groups;
    std::vector<Copy> open;
    // Products of warpgroups: committed groups, and those since.
    std::deque<std::vector<GroupProduct>> products;
    std::vector<GroupProduct> begun_products;
    // True if products may begin.
    bool ordered = false;
    // The barrier that it waits for, and the parity of the phase.
    const Barrier* barrier = nullptr;
    unsigned parity = 0;
    std::unique_ptr<char[]> stack;
};

// The blocks of a cluster that run together.
struct Cluster {
    // The fibers of a block follow those of the block before. Their states are together, because they are read often.
    std::vector<Fiber> fibers;
    std::vector<State> states;
    unsigned char* shared = static_cast<unsigned char*>(aligned_alloc(1024, MOST_BLOCKS * SHARED));
    BulkCopies copies;
    // The first block, and the threads of `sync_first`.
    unsigned block[3] = {}, first = 0;

    ~Cluster() { free(shared); }
};

struct Entry {
    const char* name;
    void (*body)(const void*);
    size_t bytes;
    unsigned most, cluster;
    // Compiled with instrumentation.
    bool observed;
};

// A launch that has not ended. `number`: of the thread's launches.
struct Launch {
    const Entry* entry;
    const void* args;
    // Threads of a block, and its bytes of shared memory.
    unsigned count, shared, grid[3], number;
    Sums sums;
    // Not null: it is observed.
    std::unique_ptr<observe::Observer> observer;
    // The first clusters, which have done what they do before their wait.
    std::vector<std::unique_ptr<Cluster>> early;
};

// An exchange between the lanes of a warp: words, or the matrices that they multiply, in bf16 or in int8.
struct Exchange {
    uint32_t words[32][12];
    Product product;
    // True if the product has been added.
    bool added;
    int8_t integer_rows[16][32], integer_columns[8][32];
};

struct Machine {
    // The launch that runs; `count`: threads of a block.
    void (*body)(const void*) = nullptr;
    const void* args = nullptr;
    unsigned count = 0, cluster = 1, grid[3] = {}, number = 0;
    Sums sums = HOPPER;
    observe::Observer* observer = nullptr;
    // True if the launch before has not ended.
    bool early = false;
    Cluster* on = nullptr;
    unsigned current = 0, launches = 0;
    Point home;
    // Two of each warp, in turn.
    std::vector<Exchange> exchanges{2 * MOST_THREADS / 32};
    // Clusters that no launch uses.
    std::vector<std::unique_ptr<Cluster>> idle;
};

static Machine& machine() {
    thread_local Machine all;
    return all;
}

[[noreturn]] static void fail(const char* what) {
    fprintf(stderr, "emulated kernel: %s\n", what);
    abort();
}

// Bytes of a fiber's stack. Those of a warp differ, so that what its lanes use lies in different sets of the caches.
static size_t stack_of(unsigned number) { return STACK + number % 32 * 1088; }

static Fiber& self() { return machine().on->fibers[machine().current]; }

// Switches to the next lane of the warp that is ready, or to the scheduler if there is none.
[[noreturn]] static void pass_on() {
    Machine& all = machine();
    unsigned lane = all.current % 32, lanes = all.number % 2 ? lane : 31 - lane;
    for (unsigned i = 0, to = all.current; i < lanes; i++) {
        to = all.number % 2 ? to - 1 : to + 1;
        if (all.on->states[to] != State::Ready) continue;
        Fiber& fiber = all.on->fibers[to];
        if (!fiber.begun) break;
        all.current = to;
        if (all.observer) all.observer->enter(to, fiber.stack.get(), stack_of(to));
        RESUME(fiber.at);
    }
    RESUME(all.home);
}

// Leaves the current fiber until it is resumed.
static void leave(State state) {
    machine().on->states[machine().current] = state;
    if (!SAVE(self().at)) pass_on();
}

static void fiber_main() {
    for (;;) {
        machine().body(machine().args);
        if (!self().waited) {
            if (!machine().observer) fail("a thread ends without a wait for the launches before");
            machine().observer->never_waited();
        }
        leave(State::Done);
    }
}

static void enter(unsigned number) {
    Machine& all = machine();
    Fiber& fiber = all.on->fibers[number];
    all.current = number;
    if (!fiber.stack) fiber.stack.reset(new char[stack_of(number)]);
    if (all.observer) all.observer->enter(number, fiber.stack.get(), stack_of(number));
    if (SAVE(all.home)) return;
    if (fiber.begun) RESUME(fiber.at);
    fiber.begun = true;
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = fiber.stack.get();
    context.uc_stack.ss_size = stack_of(number);
    context.uc_link = nullptr;
    makecontext(&context, fiber_main, 0);
    setcontext(&context);
}

// Releases the threads `from..to` if all that are not done wait in `state`.
static bool release(State state, unsigned from, unsigned to) {
    auto first = machine().on->states.begin() + from, last = machine().on->states.begin() + to;
    if (std::any_of(first, last, [=](State one) { return one != state && one != State::Done; })) return false;
    if (std::find(first, last, state) == last) return false;
    std::replace(first, last, state, State::Ready);
    return true;
}

// Runs a warp until it waits at a block barrier.
static void run_warp(unsigned from, bool backwards) {
    Machine& all = machine();
    do {
        for (unsigned i = 0; i < 32; i++) {
            unsigned number = from + (backwards ? 31 - i : i);
            if (all.on->states[number] == State::Ready) enter(number);
        }
        if (all.observer) all.observer->stop();
    } while (release(State::AtWarp, from, from + 32));
}

// Lets the threads go on that wait for a phase that is complete.
static bool wake() {
    Machine& all = machine();
    bool some = false;
    for (unsigned i = 0; i < all.count * all.cluster; i++) {
        Fiber& fiber = all.on->fibers[i];
        if (all.on->states[i] != State::Waiting || fiber.barrier->parity() == fiber.parity) continue;
        all.on->states[i] = State::Ready;
        some = true;
    }
    return some;
}

// Releases the threads `from..to` that all wait in `state`, which orders their accesses.
static bool release_all(State state, unsigned from, unsigned to) {
    if (!release(state, from, to)) return false;
    if (machine().observer) machine().observer->barrier(from, to);
    return true;
}

// Lets threads go on, if all wait; completes a bulk copy if no other can.
static bool go_on() {
    Machine& all = machine();
    unsigned threads = all.count * all.cluster;
    bool some = release_all(State::AtCluster, 0, threads);
    for (unsigned from = 0; from < threads; from += all.count) {
        some |= release_all(State::AtBlock, from, from + all.count);
        some |= all.on->first && release_all(State::AtFirst, from, from + all.on->first);
    }
    some |= wake();
    while (!some && all.on->copies.complete(all.observer)) some = wake();
    return some;
}

// Ends a launch whose threads wait forever, others perhaps for them.
static void give_up() {
    Machine& all = machine();
    const auto& states = all.on->states;
    unsigned threads = all.count * all.cluster;
    bool waiting = std::count(states.begin(), states.begin() + threads, State::Waiting) > 0;
    for (unsigned i = 0; i < threads; i++) {
        if (states[i] == State::Done) continue;
        if (!waiting) fail("a barrier that not all threads reach");
        if (!all.observer) fail("a wait that can never end");
        Fiber& fiber = all.on->fibers[i];
        if (states[i] == State::Waiting) all.observer->stuck(i, fiber.barrier);
        // The fiber begins anew.
        fiber.begun = false;
    }
}

// Runs the cluster until all threads have ended or wait for what only others can do.
static void proceed() {
    Machine& all = machine();
    bool backwards = all.number % 2 == 1, going = true;
    for (unsigned warps = all.count * all.cluster / 32; going; going = go_on())
        for (unsigned w = 0; w < warps; w++)
            run_warp((backwards ? warps - 1 - w : w) * 32, backwards);
}

static std::vector<Entry>& entries() {
    static std::vector<Entry> all;
    return all;
}

Registered::Registered(const char* name, void (*body)(const void*), size_t bytes, unsigned most,
                       unsigned cluster, bool observed) {
    entries().push_back({name, body, bytes, most, cluster, observed});
}

// Makes a launch the one that runs. `early`: until its threads wait for the launches before.
static void choose(const Launch& launch, bool early) {
    Machine& all = machine();
    all.body = launch.entry->body, all.args = launch.args;
    all.count = launch.count, all.cluster = launch.entry->cluster;
    for (int i = 0; i < 3; i++) all.grid[i] = launch.grid[i];
    all.number = launch.number, all.sums = launch.sums, all.early = early;
    all.observer = observe::current = launch.observer.get();
}

static unsigned clusters(const Launch& launch) {
    return launch.grid[0] / launch.entry->cluster * launch.grid[1] * launch.grid[2];
}

// Begins a cluster of the launch that runs.
static std::unique_ptr<Cluster> begin_cluster(const Launch& launch, unsigned number) {
    Machine& all = machine();
    if (all.idle.empty()) all.idle.push_back(std::make_unique<Cluster>());
    std::unique_ptr<Cluster> cluster = std::move(all.idle.back());
    all.idle.pop_back();
    unsigned across = all.grid[0] / all.cluster, x = number % across, threads = all.count * all.cluster;
    cluster->block[0] = (all.number % 2 ? across - 1 - x : x) * all.cluster;
    cluster->block[1] = number / across % all.grid[1], cluster->block[2] = number / across / all.grid[1];
    cluster->first = 0;
    cluster->copies.begin(all.number);
    for (unsigned b = 0; b < all.cluster; b++) memset(cluster->shared + b * SHARED, 0xFF, launch.shared);
    if (cluster->fibers.size() < threads) cluster->fibers.resize(threads);
    cluster->states.assign(cluster->fibers.size(), State::Ready);
    for (unsigned i = 0; i < threads; i++) {
        Fiber& fiber = cluster->fibers[i];
        fiber.turn = 0;
        fiber.groups.clear();
        fiber.open.clear();
        fiber.products.clear();
        fiber.begun_products.clear();
        fiber.ordered = fiber.waited = false;
    }
    if (all.observer) 
        all.observer->begin_cluster(cluster->block, all.cluster, all.count, cluster->shared);
    all.on = cluster.get();
    return cluster;
}

// Does what the first clusters do before their wait.
static void begin_early(Launch& launch) {
    choose(launch, true);
    for (unsigned i = 0; i < std::min(clusters(launch), MOST_EARLY); i++) {
        launch.early.push_back(begin_cluster(launch, i));
        proceed();
    }
}

// Runs a launch to its end.
static void finish(Launch& launch) {
    Machine& all = machine();
    choose(launch, false);
    for (unsigned i = 0; i < clusters(launch); i++) {
        std::unique_ptr<Cluster> cluster;
        if (i < launch.early.size()) {
            cluster = std::move(launch.early[i]);
            all.on = cluster.get();
            std::replace(cluster->states.begin(), cluster->states.end(), State::AtLaunch, State::Ready);
        } else cluster = begin_cluster(launch, i);
        proceed();
        give_up();
        all.idle.push_back(std::move(cluster));
    }
    all.observer = observe::current = nullptr;
}

unsigned thread() { return machine().current % machine().count; }
unsigned threads() { return machine().count; }
unsigned cluster_rank() { return machine().current / machine().count; }
unsigned block(unsigned axis) { return machine().on->block[axis] + (axis == 0 ? cluster_rank() : 0); }
unsigned blocks(unsigned axis) { return machine().grid[axis]; }
void launches_wait() {
    if (machine().early && !self().waited) leave(State::AtLaunch);
    self().waited = true;
    if (machine().observer) machine().observer->launches_waited(machine().current);
}
void constant(const void* from, unsigned bytes) {
    if (machine().observer) machine().observer->constant(from, bytes);
}
unsigned char* shared_memory() { return machine().on->shared + cluster_rank() * SHARED; }

void begin_part(unsigned number) {
    Machine& all = machine();
    if (all.observer) all.observer->part(all.current, number);
}

void sync() { leave(State::AtBlock); }
void sync_cluster() { leave(State::AtCluster); }
void sync_first(unsigned count) {
    machine().on->first = count;
    leave(State::AtFirst);
}
void sync_warp() {
    leave(State::AtWarp);
    if (machine().observer) machine().observer->order_warp(machine().current);
}

// The next exchange of the running lane's warp. Lanes that have not gone on yet use the one before.
static Exchange& next_exchange() {
    Machine& all = machine();
    return all.exchanges[2 * (all.current / 32) + self().turn++ % 2];
}

// Passes words to the warp's other lanes.
template <class T> static const Exchange& pass(const T& words) {
    Exchange& exchange = next_exchange();
    memcpy(exchange.words[machine().current % 32], &words, sizeof words);
    leave(State::AtWarp);
    return exchange;
}

void shuffle(void* words, unsigned bytes, unsigned lane) {
    Exchange& exchange = next_exchange();
    memcpy(exchange.words[machine().current % 32], words, bytes);
    leave(State::AtWarp);
    memcpy(words, exchange.words[lane], bytes);
}
uint32_t shuffle_word(uint32_t word, unsigned lane) { return pass(word).words[lane][0]; }

uint32_t ballot(bool predicate) {
    uint32_t mine = predicate, bits = 0;
    const Exchange& exchange = pass(mine);
    for (unsigned lane = 0; lane < 32; lane++) bits |= exchange.words[lane][0] << lane;
    return bits;
}

uint16_t round_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if (x != x) return 0x7FFF;
    return uint16_t((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

void copy16(void* to, const void* from, bool real) {
    if (uintptr_t(to) % 16 || (real && uintptr_t(from) % 16)) fail("a copy not aligned");
    Machine& all = machine();
    if (all.observer) all.observer->copy(to, real ? from : nullptr, __builtin_return_address(0));
    // A copy at the earliest moment shows what is read too early.
    Copy copy{to, from, real, all.early || all.number / 2 % 2};
    if (copy.made) copy.make();
    self().open.push_back(copy);
}

void copies_commit() {
    Fiber& me = self();
    me.groups.push_back(std::move(me.open));
    me.open.clear();
}

void copies_wait(unsigned newest) {
    Machine& all = machine();
    Fiber& me = self();
    for (; me.groups.size() > newest; me.groups.pop_front())
        for (const Copy& copy : me.groups.front()) {
            if (!copy.made) copy.make();
            if (all.observer) all.observer->copied(copy.to);
        }
}

bool is_last(uint32_t* count, uint32_t last) {
    if (machine().observer) machine().observer->counted(count);
    uint32_t old = *count;
    *count = old >= last ? 0 : old + 1;
    return old == last;
}

void read_across(void* to, const void* from) {
    if (machine().observer) machine().observer->across(from, __builtin_return_address(0));
    memcpy(to, from, 16);
}

void load_matrices(uint32_t* to, const void* row, bool transposed) {
    if (uintptr_t(row) % 16) fail("a row of a matrix not aligned");
    if (machine().observer) machine().observer->matrix(row, __builtin_return_address(0));
    unsigned lane = machine().current % 32;
    const Exchange& exchange = pass(row);
    auto from = [&](unsigned number) {
        const unsigned char* at;
        memcpy(&at, exchange.words[number], sizeof at);
        return at;
    };
    for (unsigned i = 0; i < 4; i++) {
        if (!transposed) {
            memcpy(to + i, from(8 * i + lane / 4) + lane % 4 * 4, 4);
            continue;
        }
        uint16_t pair[2];
        for (unsigned j = 0; j < 2; j++)
            memcpy(pair + j, from(8 * i + 2 * (lane % 4) + j) + lane / 4 * 2, 2);
        to[i] = pair[0] | uint32_t(pair[1]) << 16;
    }
}

void multiply(float* c, const uint32_t* a, uint32_t b0, uint32_t b1) {
    Machine& all = machine();
    unsigned lane = all.current % 32, row = lane / 4, column = 2 * (lane % 4);
    Exchange& of = next_exchange();
    Product& product = of.product;
    // Layout of A: four lanes per row; the lower and upper eight rows and the lower and upper eight
    // inner indices are in separate registers, two numbers of each word, the lower bits first. Layout of B: four
    // lanes per column.
    for (unsigned i = 0; i < 4; i++) {
        unsigned k = 8 * (i / 2) + 2 * (lane % 4) + i % 2, shift = 16 * (i % 2);
        product.put_row(row, k, a[i / 2 * 2] >> shift & 0xFFFF);
        product.put_row(row + 8, k, a[i / 2 * 2 + 1] >> shift & 0xFFFF);
        product.put_column(row, k, (i / 2 ? b1 : b0) >> shift & 0xFFFF);
    }
    for (unsigned i = 0; i < 4; i++) product.sums[row + 8 * (i / 2)][column + i % 2] = c[i];
    of.added = false;
    leave(State::AtWarp);
    // The first lane that goes on adds for all.
    if (!of.added) add_product(all.sums, product);
    of.added = true;
    for (unsigned i = 0; i < 4; i++) c[i] = product.sums[row + 8 * (i / 2)][column + i % 2];
}

// The sum of 32 products.
CLONED static int32_t sum_of(const int8_t* x, const int8_t* w) {
    int32_t sum = 0;
    for (int k = 0; k < 32; k++) sum += x[k] * w[k];
    return sum;
}

void multiply(int32_t* c, const uint32_t* a, uint32_t b0, uint32_t b1) {
    Machine& all = machine();
    unsigned lane = all.current % 32, row = lane / 4, column = 2 * (lane % 4);
    Exchange& of = next_exchange();
    // Four lanes have a row's or a column's words, each of the first and of the last sixteen integers.
    for (unsigned last = 0; last < 2; last++) {
        unsigned k = 16 * last + 4 * (lane % 4);
        memcpy(of.integer_rows[row] + k, a + 2 * last, 4);
        memcpy(of.integer_rows[row + 8] + k, a + 2 * last + 1, 4);
        memcpy(of.integer_columns[row] + k, last ? &b1 : &b0, 4);
    }
    leave(State::AtWarp);
    for (unsigned i = 0; i < 4; i++)
        c[i] += sum_of(of.integer_rows[row + 8 * (i / 2)], of.integer_columns[column + i % 2]);
}

// The same place in the shared memory of a block of the cluster.
static unsigned char* in_block(void* at, unsigned rank) {
    ptrdiff_t blocks = ptrdiff_t(rank) - ptrdiff_t(cluster_rank());
    return static_cast<unsigned char*>(at) + blocks * ptrdiff_t(SHARED);
}

// The same barrier of a block of the cluster.
static Barrier* barrier_of(uint64_t* barrier, unsigned rank) {
    Machine& all = machine();
    if (rank >= all.cluster) fail("a block that the cluster has not");
    auto to = reinterpret_cast<Barrier*>(in_block(barrier, rank));
    if (!to->is_initialised()) fail("a barrier that was not initialised");
    auto ended = [](State state) { return state == State::Done; };
    auto first = all.on->states.begin() + rank * all.count;
    if (std::all_of(first, first + all.count, ended)) {
        if (!all.observer) fail("a barrier of a block that has ended");
        all.observer->ended(rank);
    }
    return to;
}

void barrier_init(uint64_t* barrier, unsigned count) { *reinterpret_cast<Barrier*>(barrier) = Barrier(count); }
void barrier_expect(uint64_t* barrier, unsigned bytes) {
    barrier_of(barrier, cluster_rank())->expect(bytes);
    barrier_arrive(barrier, cluster_rank());
}
void barrier_arrive(uint64_t* barrier, unsigned rank) {
    Machine& all = machine();
    Barrier* to = barrier_of(barrier, rank);
    if (all.observer) all.observer->arrive(to, all.current);
    if (to->arrive() && all.observer) all.observer->complete(to);
}
void barrier_wait(uint64_t* barrier, unsigned parity) {
    Machine& all = machine();
    Fiber& me = self();
    me.barrier = barrier_of(barrier, cluster_rank());
    me.parity = parity;
    while (me.barrier->parity() == parity) leave(State::Waiting);
    if (all.observer) all.observer->waited(me.barrier, all.current);
}

void bulk_copy(void* to, const void* map, unsigned inner, unsigned row, uint64_t* barrier, unsigned blocks) {
    Machine& all = machine();
    if (uintptr_t(to) % 1024) fail("a bulk copy not aligned");
    BulkCopy copy{static_cast<unsigned char*>(to), nullptr, static_cast<const Map*>(map), inner, row};
    if (!copy.map->is_one()) fail("a bulk copy without a map");
    if (all.observer) copy.observe(*all.observer, __builtin_return_address(0));
    for (unsigned rank = 0; rank < all.cluster; rank++) {
        if (!(blocks >> rank & 1)) continue;
        copy.to = in_block(to, rank);
        copy.barrier = barrier_of(barrier, rank);
        if (all.observer) all.observer->bulk(copy.to, copy.bytes(), copy.barrier);
        all.on->copies.add(copy, all.observer);
    }
}

// Where a piece of sixteen bytes begins in a tile of swizzled rows with 128 bytes.
static const unsigned char* piece_of(const unsigned char* tile, unsigned row, unsigned piece) {
    return tile + (row * 8 + (piece ^ row % 8)) * 16;
}

// The k-th bf16 of those of a row that a product reads.
static uint32_t number_of(const unsigned char* tile, unsigned row, unsigned first, unsigned k) {
    uint16_t bits;
    memcpy(&bits, piece_of(tile, row, first * 2 + k / 8) + k % 8 * 2, 2);
    return bits;
}

// The products that the lanes of a warp take part in.
using Lanes = const GroupProduct* [32];

// Adds the products of sixteen rows from `top` on of the left operand and all columns of the right one.
static void add_numbers(Product& of, const Lanes& lanes, unsigned top) {
    const GroupProduct& first = *lanes[0];
    for (unsigned row = 0; row < ROWS; row++)
        for (unsigned k = 0; k < INNER; k++) {
            // As the left operand of `multiply`.
            const GroupProduct& lane = *lanes[row % 8 * 4 + k % 8 / 2];
            of.put_row(row, k, first.left ? number_of(first.left, top + row, first.k, k)
                                          : lane.registers[k / 8 * 2 + row / 8] >> 16 * (k % 2) & 0xFFFF);
        }
    for (unsigned j = 0; j < first.columns / COLUMNS; j++) {
        for (unsigned column = 0; column < COLUMNS; column++)
            for (unsigned k = 0; k < INNER; k++)
                of.put_column(column, k, number_of(first.right, j * COLUMNS + column, first.k, k));
        auto each = [&](auto f) {
            for (unsigned lane = 0; lane < 32; lane++)
                for (unsigned i = 0; i < 4; i++)
                    f(static_cast<float(*)[4]>(lanes[lane]->sums)[j][i], lane / 4 + 8 * (i / 2), 2 * (lane % 4) + i % 2);
        };
        each([&](float& sum, unsigned row, unsigned column) { of.sums[row][column] = sum; });
        add_product(machine().sums, of);
        each([&](float& sum, unsigned row, unsigned column) { sum = of.sums[row][column]; });
    }
}

static void add_integers(const Lanes& lanes, unsigned top) {
    const GroupProduct& first = *lanes[0];
    auto row_of = [&](const unsigned char* tile, unsigned row, int8_t (&to)[32]) {
        for (unsigned i = 0; i < 2; i++) memcpy(to + 16 * i, piece_of(tile, row, first.k * 2 + i), 16);
    };
    int8_t rows[16][32], column[32];
    for (unsigned row = 0; row < 16; row++) row_of(first.left, top + row, rows[row]);
    for (unsigned j = 0; j < first.columns; j++) {
        row_of(first.right, j, column);
        for (unsigned row = 0; row < 16; row++) {
            auto sums = static_cast<int32_t(*)[4]>(lanes[row % 8 * 4 + j % 8 / 2]->sums);
            sums[j / 8][row / 8 * 2 + j % 2] += sum_of(rows[row], column);
        }
    }
}

static void run(const GroupProduct& product) {
    Machine& all = machine();
    unsigned lane = all.current % 32, top = thread() % 128 / 32 * 16;
    if (all.observer) {
        // Rows of eight pieces, as in `load_matrices`.
        static const char LEFT = 0, RIGHT = 0;
        if (product.left)
            all.observer->matrix(piece_of(product.left, top + lane % 16, product.k * 2 + lane / 16), &LEFT);
        for (unsigned row = lane % 8 + lane / 16 * 8; row < product.columns; row += 16)
            all.observer->matrix(piece_of(product.right, row, product.k * 2 + lane / 8 % 2), &RIGHT);
    }
    const GroupProduct* mine = &product;
    Exchange& of = next_exchange();
    memcpy(of.words[lane], &mine, sizeof mine);
    of.added = false;
    leave(State::AtWarp);
    // The first lane that goes on adds for all.
    if (of.added) return;
    of.added = true;
    Lanes lanes;
    for (unsigned i = 0; i < 32; i++) memcpy(&lanes[i], of.words[i], sizeof mine);
    product.integers ? add_integers(lanes, top) : add_numbers(of.product, lanes, top);
}

void group_begin() { self().ordered = true; }

void group_product(const GroupProduct& product) {
    Machine& all = machine();
    Fiber& me = self();
    if (!me.ordered) fail("a product of a warpgroup without group_begin");
    // A tile begins at a multiple of 1024 bytes.
    for (const unsigned char* tile : {product.left, product.right})
        if (uintptr_t(tile) % 1024) fail("a tile of a product not aligned");
    // Every second pair of launches: immediately.
    if (all.number / 2 % 2) run(product);
    me.begun_products.push_back(product);
}

void group_commit() {
    Fiber& me = self();
    me.products.push_back(std::move(me.begun_products));
    me.begun_products.clear();
    me.ordered = false;
}

void group_wait(unsigned newest) {
    Fiber& me = self();
    while (me.products.size() > newest) {
        std::vector<GroupProduct> group = std::move(me.products.front());
        me.products.pop_front();
        if (machine().number / 2 % 2 == 0)
            for (const GroupProduct& product : group) run(product);
    }
}

} // namespace emulate

// The options of a launch; mirrored in src/device/emulation.rs.
struct Options {
    // As Sums.
    uint32_t sums;
    // The allocations of the device, in ascending order, if the launch is observed.
    const observe::Range* ranges;
    uint64_t count;
    // Null: the launch is not observed.
    observe::Report* report;
    // The uses by the launches before, for an observed one.
    observe::Step* step;
};

// Begins a launch on the calling thread; null if no kernel has this name. `early`: its blocks do what they do before
// they wait for the launches before. The arguments and options live until it has ended.
extern "C" void* asynclane_begin(const char* name, const uint32_t* grid, uint32_t threads, uint32_t shared,
                                 const void* args, const Options* options, bool early) {
    using namespace emulate;
    bool observed = options->report;
    for (const Entry& entry : entries()) {
        if (entry.observed != observed || strcmp(entry.name, name) != 0) continue;
        if (threads > entry.most || threads % 32 != 0 || shared > SHARED || grid[0] % entry.cluster)
            fail("a launch out of bounds");
        unsigned number = ++machine().launches;
        auto launch = new Launch{&entry, args, threads, shared, {grid[0], grid[1], grid[2]}, number,
                                 Sums(options->sums), nullptr, {}};
        if (observed)
            launch->observer = std::make_unique<observe::Observer>(
                name, shared, observe::Span{args, entry.bytes}, *options->report, *options->step,
                std::vector<observe::Range>(options->ranges, options->ranges + options->count));
        if (early) begin_early(*launch);
        return launch;
    }
    return nullptr;
}

// Runs a launch to its end.
extern "C" void asynclane_finish(void* launch) {
    std::unique_ptr<emulate::Launch> owned(static_cast<emulate::Launch*>(launch));
    emulate::finish(*owned);
}

// The uses of memory by a device's launches, for their observers.
extern "C" void* asynclane_step() { return new observe::Step; }
extern "C" void asynclane_end_step(void* step) { delete static_cast<observe::Step*>(step); }
// Forgets what was done with memory.
extern "C" void asynclane_forget(void* step, uint64_t start, uint64_t bytes) {
    static_cast<observe::Step*>(step)->forget({start, bytes});
}

// The sum of c and the products of 16 pairs of bf16, as a tensor core makes it.
extern "C" float asynclane_tensor_sum(uint32_t sums, const uint16_t* a, const uint16_t* b, float c) {
    emulate::Product of = {};
    for (int k = 0; k < emulate::INNER; k++) {
        of.put_row(0, k, a[k]);
        for (int column = 0; column < emulate::COLUMNS; column++) of.put_column(column, k, b[k]);
    }
    of.sums[0] = emulate::Floats{} + c;
    emulate::add_product(emulate::Sums(sums), of);
    return of.sums[0][0];
}
