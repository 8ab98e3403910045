// `lego fr`: what every rank was doing, from the flight recorders of a run.
#pragma once

#include "server/cli/command.h"

namespace legoai::cli {

Command FlightCommand();

}  // namespace legoai::cli
