// `lego list`, `get`, `cancel`, `retry`: the jobs of a server.
#pragma once

#include "server/cli/command.h"

namespace legoai::cli {

Command ListCommand();
Command GetCommand();
Command CancelCommand();
Command RetryCommand();

}  // namespace legoai::cli
