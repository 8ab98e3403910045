// Which slots of a worker may be given to jobs. Thread-safety: pure functions.
#pragma once

#include <cstdint>

#include "proto/legoai/v1/worker.pb.h"

namespace legoai {

// Used or free: those without a fault; none where the whole worker has one.
int64_t SoundSlots(const v1::Worker& worker);
int64_t SoundSlots(const v1::Worker& worker, const v1::WorkerHealth& health);  // of another health than the worker's own
// The same without those that jobs have, and none while the worker is being checked. A slot that has a fault while a job has it
// is counted with both: until that job ends there may be one fewer than there could be, and never one too many.
int64_t FreeSlots(const v1::Worker& worker);
int64_t FreeSlots(const v1::Worker& worker, const v1::WorkerHealth& health);

}  // namespace legoai
