// The communicator of a group of one: collectives copy, or do nothing where they work in place.
#pragma once

#include <memory>

#include "worker/comm/communicator.h"
#include "worker/comm/streams.h"

namespace legoai::comm {

// `streams` copies, as it can the memory of the tensors; it is not owned and outlives the communicator. Null: host memory.
std::unique_ptr<Communicator> MakeLocalCommunicator(Streams* streams = nullptr);

}  // namespace legoai::comm
