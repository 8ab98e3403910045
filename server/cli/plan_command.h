// `lego plan`: ranks the recipes of a model on a cluster.
#pragma once

#include "server/cli/command.h"

namespace legoai::cli {

Command PlanCommand();

}  // namespace legoai::cli
