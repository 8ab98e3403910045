// `lego logs JOB`: what trainers, agents and the server have to say about a job.
#pragma once

#include "server/cli/command.h"

namespace legoai::cli {

Command LogsCommand();

}  // namespace legoai::cli
