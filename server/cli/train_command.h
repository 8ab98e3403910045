// `lego train`: trains on this machine, without a server.
#pragma once

#include "server/cli/command.h"

namespace legoai::cli {

Command TrainCommand();

}  // namespace legoai::cli
