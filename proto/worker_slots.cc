#include "proto/worker_slots.h"

#include <algorithm>
#include <set>

namespace legoai {

int64_t SoundSlots(const v1::Worker& worker, const v1::WorkerHealth& health) {
  if (!health.fault().empty()) return 0;
  std::set<int64_t> faulty;
  for (const v1::SlotFault& fault : health.slot_faults()) faulty.insert(fault.slot());
  return worker.slots() - static_cast<int64_t>(faulty.size());
}

int64_t SoundSlots(const v1::Worker& worker) { return SoundSlots(worker, worker.health()); }

int64_t FreeSlots(const v1::Worker& worker, const v1::WorkerHealth& health) {
  if (health.checking()) return 0;
  int64_t used = 0;
  for (const v1::SlotUse& use : worker.used()) used += use.slots();
  return std::max<int64_t>(0, SoundSlots(worker, health) - used);
}

int64_t FreeSlots(const v1::Worker& worker) { return FreeSlots(worker, worker.health()); }

}  // namespace legoai
