// Schedules that split a backward into the gradient of its input, which the previous rank waits for, and the gradients of its
// weights, which nobody waits for and which fill the bubble (Qi et al. 2024). Names and orders are those of PyTorch's schedules.
// Each function gives the actions of one pipeline rank. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "core/schedule/schedule.h"

namespace legoai::parallel {

// Interleaved 1F1B whose weight gradients lag behind by as many microbatches as there are ranks before this one; ZB-H1 with one
// chunk a rank (Qi et al. 2024, section 3.1): every rank holds as many activations as the first one under 1F1B, and the bubble is
// a third of 1F1B's if forward and both gradients take equally long. `forwards` and `gradients`: of the rank, in the order of
// interleaved 1F1B.
std::vector<Action> InterleavedZeroBubble(const std::vector<Action>& forwards, const std::vector<Action>& gradients,
                                          int64_t ahead, int64_t rank);

// Two chunks a rank in a V: rank r has the chunks r and 2 ranks - 1 - r (Qi et al. 2024, section 6).
std::vector<Action> ZbvZeroBubble(int64_t ranks, int64_t microbatches, int64_t rank);

// DualPipeV (DeepSeek-AI 2025, the V-shaped half of DualPipe): forwards of one chunk beside backwards of the other. At least
// 2 x ranks microbatches.
std::vector<Action> DualPipeV(int64_t ranks, int64_t microbatches, int64_t rank);

// The actions of `rank` under ZBV or DualPipeV, `kind`, on two ranks or more.
std::vector<Action> InV(v1::PipelineSchedule kind, int64_t ranks, int64_t microbatches, int64_t rank);

}  // namespace legoai::parallel
