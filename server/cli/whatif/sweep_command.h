// `lego sweep`: plans, or one recipe, over what varies. Torch-free.
#pragma once

#include "server/cli/command.h"

namespace legoai::cli {

Command SweepCommand();

}  // namespace legoai::cli
