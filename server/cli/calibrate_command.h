// `lego calibrate`: from what a card measured to a device whose times rest on it.
#pragma once

#include "server/cli/command.h"

namespace legoai::cli {

Command CalibrateCommand();

}  // namespace legoai::cli
