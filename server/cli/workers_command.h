// `lego workers`: the machines that train.
#pragma once

#include "server/cli/command.h"

namespace legoai::cli {

Command WorkersCommand();

}  // namespace legoai::cli
