// Streams and events of CUDA: compute is the current stream, every side stream one of the pool.
#pragma once

#include <memory>

#include "worker/comm/streams.h"

namespace legoai::comm {

std::unique_ptr<Streams> MakeCudaStreams();

}  // namespace legoai::comm
