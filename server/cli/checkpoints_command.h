// `lego checkpoints RUN_DIR`: what a run can go on from.
#pragma once

#include "server/cli/command.h"

namespace legoai::cli {

Command CheckpointsCommand();

}  // namespace legoai::cli
