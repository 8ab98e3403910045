// `lego submit JOB.toml`: hands a job to a server.
#pragma once

#include "server/cli/command.h"

namespace legoai::cli {

Command SubmitCommand();

}  // namespace legoai::cli
