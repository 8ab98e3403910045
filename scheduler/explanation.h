// Why a job waits, as data and in a sentence. Thread-safe.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "scheduler/fleet.h"
#include "scheduler/reservation.h"

namespace legoai::scheduler {

// Of a job that got nothing, when all grants are made.
Wait Explain(absl::Time now, const Fleet& fleet, const Reservations& reservations, const WaitingJob& job, int64_t position);

}  // namespace legoai::scheduler
