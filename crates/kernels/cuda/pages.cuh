// The layout of keys and values: [pages, g, p, c] each. In int8 a page of a head has its c p numbers, then a
// scale in f32 for each of its p slots: what the CPU has for values.
#pragma once
#include "portable.h"

// Offset of a page of a head in a pool of numbers N, counted in numbers. `a` has the heads of a layer.
template <class N, class A> DEVICE size_t head_at(const A& a, size_t page, unsigned group) {
    return (page * a.groups + group) * a.page * (a.c + (sizeof(N) == 1 ? sizeof(float) : 0));
}

// Offset of a slot's numbers.
template <class N, class A>
DEVICE size_t numbers_at(const A& a, size_t page, unsigned group, unsigned slot) {
    return head_at<N>(a, page, group) + size_t(slot) * a.c;
}

// Offset of a slot's scale in a pool in int8.
template <class A> DEVICE size_t scale_at(const A& a, size_t page, unsigned group, unsigned slot) {
    return head_at<int8_t>(a, page, group) + size_t(a.page) * a.c + slot * sizeof(float);
}
