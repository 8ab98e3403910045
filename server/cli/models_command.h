// `lego models`: the models known by name.
#pragma once

#include "server/cli/command.h"

namespace legoai::cli {

Command ModelsCommand();

}  // namespace legoai::cli
