// Parameter and operation counts of a model in closed form, without building it. Thread-safety: pure functions.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/legoai/v1/hardware.pb.h"
#include "proto/legoai/v1/model.pb.h"

namespace legoai::model {

// Numbers of parameters by part.
struct ParameterCounts {
  int64_t embedding = 0;           // token table
  int64_t position_embedding = 0;  // learned positions (GPT-2)
  int64_t block = 0;               // one transformer block, its norms included
  int64_t final_norm = 0;
  int64_t head = 0;  // 0 if tied to the embedding
};

ParameterCounts CountParameters(const v1::Model& model);

// All parameters, a tied table once: what a checkpoint holds.
int64_t ParameterCount(const v1::Model& model);

// Floating-point operations of forward and backward per token, without recomputation: 6 N + 12 L h s (PaLM, Chowdhery et al.
// 2023, appendix B). N excludes tables that are only looked up; a tied table is also the head's matrix and counts. h is the width
// of attention, heads x head_dim; the half that the causal mask saves is not deducted. s is at most the sliding window, in
// the blocks that have one.
double FlopsPerToken(const v1::Model& model, int64_t seq_len);

// How many positions each one attends to in a block, itself included; 0: all before it. Blocks are counted from 0.
int64_t WindowOf(const v1::Model& model, int64_t block);

// Whether attention's scores are tensors of their own, [batch, heads, queries, keys], and not inside one operator: to cap them,
// or to drop probabilities.
bool MaterializesScores(const v1::Model& model);

// Whether devices of this kind can train on sequences of this length: attention with a sliding window is not supported on CUDA,
// unless it materializes scores, whose mask has the window.
// Error: FieldError of training.seq_len.
absl::Status CheckWindow(const v1::Model& model, int64_t seq_len, v1::DeviceKind kind);

// Model FLOPs utilization of a device: the FLOP/s it achieves, counted by FlopsPerToken, as a share of its peak (PaLM, Chowdhery
// et al. 2023, section 4.1). Errors: FieldError of the device's peak if none is known, or if the share is above 1: no device
// exceeds its peak, so the catalog or the device file is wrong.
absl::StatusOr<double> ModelFlopsUtilization(double flops_per_second, double peak_flops_per_second);

}  // namespace legoai::model
