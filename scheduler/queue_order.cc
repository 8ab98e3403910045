#include "scheduler/queue_order.h"

#include <algorithm>

namespace legoai::scheduler {

bool Before(const WaitingJob& a, const WaitingJob& b) {
  if (a.priority != b.priority) return a.priority > b.priority;
  if (a.restarting != b.restarting) return a.restarting;
  if (a.submitted_us != b.submitted_us) return a.submitted_us < b.submitted_us;
  return a.name < b.name;
}

std::vector<const WaitingJob*> QueueOrder(const std::vector<WaitingJob>& waiting) {
  std::vector<const WaitingJob*> order;
  order.reserve(waiting.size());
  for (const WaitingJob& job : waiting) order.push_back(&job);
  std::sort(order.begin(), order.end(), [](const WaitingJob* a, const WaitingJob* b) { return Before(*a, *b); });
  return order;
}

}  // namespace legoai::scheduler
