#include "scheduler/explanation.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace legoai::scheduler {
namespace {

// What the workers that a job may use have to offer.
struct Offer {
  int64_t largest = 0;
  int64_t most_free = 0;
  int freest = -1;                    // by name the first that has most_free
  const Reservation* kept = nullptr;  // of the head that could use one of them
};

Offer OfferTo(const WaitingJob& job, const Fleet& fleet, const Reservations& reservations) {
  Offer offer;
  for (int worker : fleet.Accepting(job)) {
    const Fleet::Worker& slots = fleet.workers()[worker];
    offer.largest = std::max(offer.largest, slots.view->slots);
    if (slots.free > offer.most_free) {
      offer.most_free = slots.free;
      offer.freest = worker;
    }
    const Reservation* kept = reservations.KeptFor(worker);
    if (kept != nullptr && (kept->job == &job || offer.kept == nullptr)) offer.kept = kept;
  }
  return offer;
}

std::string WhereText(const WaitingJob& job) {
  return absl::StrCat("pool ", job.pool, job.device_type.empty() ? "" : absl::StrCat(" of type ", job.device_type));
}

std::string WantedText(const WaitingJob& job) {
  return job.slots == 1 ? "1 slot is wanted" : absl::StrCat(job.slots, " slots are wanted on one worker");
}

std::string CountText(int64_t slots) { return slots == 0 ? "none is" : slots == 1 ? "1 is" : absl::StrCat(slots, " are"); }

std::string BusyText(const WaitingJob& job, const Offer& offer) {
  return absl::StrCat(WantedText(job), ", ", offer.most_free > 0 ? "at most " : "", CountText(offer.most_free), " free in ",
                      WhereText(job));
}

std::string ReservedText(const WaitingJob& job, const Fleet& fleet, const Reservations& reservations, const Offer& offer) {
  const Reservation* kept = reservations.KeptFor(offer.freest);
  return absl::StrCat(WantedText(job), ", ", CountText(offer.most_free), " free on ", fleet.workers()[offer.freest].view->name,
                      " and kept for ", kept->job->name, ", which is before it");
}

}  // namespace

Wait Explain(absl::Time now, const Fleet& fleet, const Reservations& reservations, const WaitingJob& job, int64_t position) {
  const Offer offer = OfferTo(job, fleet, reservations);
  Wait wait{job.name, position, Wait::Why::kBusy, offer.largest, std::nullopt, ""};
  if (fleet.Accepting(job).empty()) {
    wait.why = Wait::Why::kNoSuchWorker;
    wait.text = absl::StrCat("no worker of ", WhereText(job), " accepts jobs");
  } else if (offer.largest < job.slots) {
    wait.why = Wait::Why::kTooLarge;
    wait.text = absl::StrCat(WantedText(job), ", the largest of ", WhereText(job), " has ", offer.largest);
  } else if (offer.most_free >= job.slots) {
    wait.why = Wait::Why::kReserved;
    wait.text = ReservedText(job, fleet, reservations, offer);
  } else {
    wait.text = BusyText(job, offer);
  }
  absl::StrAppend(&wait.text, "; position ", position);
  const bool head = offer.kept != nullptr && offer.kept->job == &job;
  if (head && offer.kept->at.has_value() && *offer.kept->at > now) {
    wait.expected_start = offer.kept->at;
    absl::StrAppend(&wait.text, ", expected to start at ",
                    absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", *offer.kept->at, absl::UTCTimeZone()));
  }
  return wait;
}

}  // namespace legoai::scheduler
