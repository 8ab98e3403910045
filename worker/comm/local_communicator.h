// The communicator of a group of one: collectives copy.
#pragma once

#include <memory>

#include "worker/comm/communicator.h"

namespace legoai::comm {

std::unique_ptr<Communicator> MakeLocalCommunicator();

}  // namespace legoai::comm
