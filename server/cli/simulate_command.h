// `lego simulate`: the step time and memory of one recipe, predicted by running its very step on a fake device.
#pragma once

#include "server/cli/command.h"

namespace legoai::cli {

Command SimulateCommand();

}  // namespace legoai::cli
