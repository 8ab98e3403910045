#include "scheduler/reservation.h"

namespace legoai::scheduler {

Reservation Reserve(const Fleet& fleet, const WaitingJob& job, const std::vector<int>& could_use) {
  Reservation best{&job, -1, std::nullopt, 0};
  for (int worker : could_use) {
    const auto at = fleet.FreeAt(worker, job.slots);
    if (!at.has_value()) continue;
    const bool earlier = !best.at.has_value() || *at < *best.at;
    const bool same = best.at.has_value() && *at == *best.at;
    if (!earlier && !(same && fleet.workers()[worker].free > fleet.workers()[best.worker].free)) continue;
    best.worker = worker;
    best.at = at;
  }
  if (best.worker >= 0) best.left_over = fleet.FreeSlotsAt(best.worker, *best.at) - job.slots;
  return best;
}

void Reservations::Add(const Reservation& reservation, const std::vector<int>& could_use) {
  Reservation& kept = reservations_[reservation.job] = reservation;
  for (int worker : could_use) keeps_[worker] = &kept;
}

const Reservation* Reservations::Of(const WaitingJob& job) const {
  const auto found = reservations_.find(&job);
  return found == reservations_.end() ? nullptr : &found->second;
}

bool Reservations::Outlasts(int worker, absl::Time end) const {
  const Reservation* kept = keeps_[worker];
  return kept != nullptr && kept->worker == worker && end > *kept->at;
}

bool Reservations::Allow(int worker, int64_t slots, absl::Time end) const {
  const Reservation* kept = keeps_[worker];
  if (kept != nullptr && kept->worker < 0) return false;
  return !Outlasts(worker, end) || slots <= kept->left_over;
}

void Reservations::Started(int worker, int64_t slots, absl::Time end) {
  if (Outlasts(worker, end)) keeps_[worker]->left_over -= slots;
}

}  // namespace legoai::scheduler
