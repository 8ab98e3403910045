// Stream numbers, the same in every rank and every Trace. Torch-free.
//
// The compute stream is the calling thread; on it run all ATen operators, and collectives that the next operator needs at once
// (tensor parallel, gradient norm). Side streams run only operators of ours.
#pragma once

#include <cstdint>

namespace legoai::comm {

enum StreamId : int64_t {
  kCompute = 0,
  kAllGather = 1,      // FSDP unshard
  kReduceScatter = 2,  // FSDP gradients
  kReplicate = 3,      // DDP and HSDP all-reduce of gradients
  kSendNext = 4,       // pipeline: activations to the next stage
  kRecvPrevious = 5,   // pipeline: activations from the previous stage
  kSendPrevious = 6,   // pipeline: activation gradients to the previous stage
  kRecvNext = 7,       // pipeline: activation gradients from the next stage
  kStreamCount = 8,
};

const char* StreamName(int64_t stream);

}  // namespace legoai::comm
