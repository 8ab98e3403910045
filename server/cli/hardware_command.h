// `lego hardware`: the catalog of devices and links; `--measure` measures this machine's CPU (machine.h keeps it).
#pragma once

#include "server/cli/command.h"

namespace legoai::cli {

Command HardwareCommand();

}  // namespace legoai::cli
