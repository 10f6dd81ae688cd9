// Barriers in shared memory and bulk copies, as groups_device.h defines them.
#pragma once
#include "observe.h"
#include <stdint.h>
#include <string.h>
#include <vector>

namespace emulate {

// A barrier in shared memory.
class Barrier {
  public:
    explicit Barrier(unsigned count) : count(uint16_t(count)), left(uint16_t(count)), word(NO_BYTES) {}

    bool is_initialised() const { return count != 0 && count != 0xFFFF; }
    // The parity of the phase that is not complete.
    unsigned parity() const { return word >> 31; }
    void expect(unsigned bytes) { word += bytes; }
    // True if it completes the phase.
    bool arrive() {
        left--;
        return ends();
    }
    bool receive(unsigned bytes) {
        word -= bytes;
        return ends();
    }

  private:
    // The lower 31 bits without bytes that are expected; more may arrive than are.
    static constexpr uint32_t NO_BYTES = 1u << 30;
    uint16_t count, left;
    uint32_t word;

    bool ends() {
        if (left != 0 || (word & 0x7FFFFFFF) != NO_BYTES) return false;
        left = count;
        word ^= 1u << 31;
        return true;
    }
};
static_assert(sizeof(Barrier) == 8, "as large as a barrier of a GPU");

// The description of rows for bulk copies: their address, inner elements of two bytes, rows, bytes from one
// to the next, rows of a copy, and a mark. Mirrored in src/emulation.rs.
struct Map {
    static constexpr uint64_t MARK = 0x70616D20726F7364;
    uint64_t address, inner, rows, stride, box, mark;

    bool is_one() const { return mark == MARK; }
};

// A copy of rows of 128 bytes to a swizzled tile of one block.
struct BulkCopy {
    static constexpr unsigned ROW = 128, PIECE = 16;
    unsigned char* to;
    Barrier* barrier;
    const Map* map;
    unsigned inner, row;

    unsigned bytes() const { return unsigned(map->box) * ROW; }

    // The piece of a row, or null if it is beyond the rows.
    const unsigned char* piece(unsigned i, unsigned j) const {
        uint64_t element = inner + j * (PIECE / 2), line = uint64_t(row) + i;
        if (line >= map->rows || element >= map->inner) return nullptr;
        return reinterpret_cast<const unsigned char*>(map->address + line * map->stride + element * 2);
    }

    void make() const {
        for (unsigned i = 0; i < map->box; i++)
            for (unsigned j = 0; j < ROW / PIECE; j++) {
                unsigned char* place = to + i * ROW + (j ^ i % 8) * PIECE;
                if (const unsigned char* from = piece(i, j)) memcpy(place, from, PIECE);
                else memset(place, 0, PIECE);
            }
    }

    // It reads whole rows, because inner elements are a multiple of those of a copy.
    void observe(observe::Observer& observer, const void* code) const {
        for (unsigned i = 0; i < map->box; i++)
            if (const unsigned char* from = piece(i, 0)) observer.bulk_read(from, ROW, code);
    }
};

// The copies that are on their way. In turn by launches, they complete at once; in their order, when all
// threads wait; or then in another order.
class BulkCopies {
  public:
    void begin(unsigned launches) {
        mode = launches / 2 % 3;
        seed = launches;
        waiting.clear();
    }

    void add(const BulkCopy& copy, observe::Observer* observer) {
        waiting.push_back(copy);
        if (mode == 0) complete(observer);
    }

    // Completes one; false without any.
    bool complete(observe::Observer* observer) {
        if (waiting.empty()) return false;
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        size_t at = mode == 2 ? (seed >> 33) % waiting.size() : 0;
        BulkCopy copy = waiting[at];
        waiting.erase(waiting.begin() + ptrdiff_t(at));
        copy.make();
        if (observer) observer->bulk_done(copy.to, copy.bytes(), copy.barrier);
        if (copy.barrier->receive(copy.bytes()) && observer) observer->complete(copy.barrier);
        return true;
    }

  private:
    std::vector<BulkCopy> waiting;
    unsigned mode = 0;
    uint64_t seed = 0;
};

} // namespace emulate
