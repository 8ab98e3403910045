// `lego generate RUN|FOLDER`: goes on with a text, with a model that was trained.
#pragma once

#include "server/cli/command.h"

namespace legoai::cli {

Command GenerateCommand();

}  // namespace legoai::cli
