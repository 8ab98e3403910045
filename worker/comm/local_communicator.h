// The communicator of a group of one: collectives copy, in host memory. On a GPU only those that work in place may be used
// (all-reduce, broadcast), which do nothing; no technique issues others for a group of one.
#pragma once

#include <memory>

#include "worker/comm/communicator.h"

namespace legoai::comm {

std::unique_ptr<Communicator> MakeLocalCommunicator();

}  // namespace legoai::comm
