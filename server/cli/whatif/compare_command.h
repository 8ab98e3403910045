// `lego compare`: what each difference between two recipes costs. Torch-free.
#pragma once

#include "server/cli/command.h"

namespace legoai::cli {

Command CompareCommand();

}  // namespace legoai::cli
