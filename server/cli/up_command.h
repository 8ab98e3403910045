// `lego up`: server and agent of this machine, in the background.
#pragma once

#include "server/cli/command.h"

namespace legoai::cli {

Command UpCommand();

}  // namespace legoai::cli
