// Products of rows that are grouped by expert on warpgroups, in the tiles of dense products. Devices of compute
// capability 9.0 only, which use no others. Sums have the bits of experts.cuh.
#pragma once
#include "experts.cuh"
#include "groups_widened.cuh"

#ifdef WARPGROUPS

// For few rows of each expert, with weights that are widened: rows are the columns of its products, so that a
// tile may have sixteen.
template <class Weights> using Widened16x128 = TileWidened<Weights, 16, 2, 5, 2, false>;
KERNEL(gates_bf16_groups_64x64, Grouped, 256) { grouped<Groups64x64<bf16>, bf16, bf16>(a); }
KERNEL(downs_bf16_groups_64x64, Grouped, 256) { grouped<Groups64x64<bf16>, bf16, float>(a); }
KERNEL(gates_bf16_groups_64x128, Grouped, 256) { grouped<Groups64x128<bf16>, bf16, bf16>(a); }
KERNEL(downs_bf16_groups_64x128, Grouped, 256) { grouped<Groups64x128<bf16>, bf16, float>(a); }
KERNEL(gates_int8_groups_64x64, Grouped, 256) {
    grouped<Groups64x64<int8_t>, int8_t, float, true>(a);
}
KERNEL(downs_int8_groups_64x64, Grouped, 256) {
    grouped<Groups64x64<int8_t>, int8_t, float, true>(a);
}
KERNEL(gates_int8_groups_64x128, Grouped, 256) {
    grouped<Groups64x128<int8_t>, int8_t, float, true>(a);
}
KERNEL(downs_int8_groups_64x128, Grouped, 256) {
    grouped<Groups64x128<int8_t>, int8_t, float, true>(a);
}
KERNEL(gates_int8w_groups_16x128, Grouped, 256) {
    grouped<Widened16x128<WidenedGroups>, bf16, bf16, true>(a);
}
KERNEL(downs_int8w_groups_16x128, Grouped, 256) {
    grouped<Widened16x128<WidenedGroups>, bf16, float, true>(a);
}
KERNEL(gates_int8w_groups_64x128, Grouped, 256) {
    grouped<Widened64x128<WidenedGroups>, bf16, bf16, true>(a);
}
KERNEL(downs_int8w_groups_64x128, Grouped, 256) {
    grouped<Widened64x128<WidenedGroups>, bf16, float, true>(a);
}
KERNEL(gates_packed_groups_16x128, Grouped, 256) {
    grouped<Widened16x128<PackedGroups>, bf16, bf16>(a);
}
KERNEL(downs_packed_groups_16x128, Grouped, 256) {
    grouped<Widened16x128<PackedGroups>, bf16, float>(a);
}
KERNEL(gates_packed_groups_64x128, Grouped, 256) {
    grouped<Widened64x128<PackedGroups>, bf16, bf16>(a);
}
KERNEL(downs_packed_groups_64x128, Grouped, 256) {
    grouped<Widened64x128<PackedGroups>, bf16, float>(a);
}
#endif
