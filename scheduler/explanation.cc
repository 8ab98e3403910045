#include "scheduler/explanation.h"

#include "absl/strings/str_cat.h"

namespace legoai::scheduler {
namespace {

std::string WhereText(const WaitingJob& job) {
  return absl::StrCat("pool ", job.pool, job.device_type.empty() ? "" : absl::StrCat(" of type ", job.device_type),
                      job.kinds.empty() ? "" : " of the kind that it is planned for");
}

std::string WantedText(const WaitingJob& job) {
  return job.slots == 1 ? "1 slot is wanted" : absl::StrCat(job.slots, " slots are wanted on one worker");
}

std::string CountText(int64_t slots) { return slots == 0 ? "none is" : slots == 1 ? "1 is" : absl::StrCat(slots, " are"); }

std::string BusyText(const WaitingJob& job, const Fleet::Group& group) {
  return absl::StrCat(WantedText(job), ", ", group.most_free > 0 ? "at most " : "", CountText(group.most_free), " free in ",
                      WhereText(job));
}

std::string ReservedText(const WaitingJob& job, const Fleet& fleet, const Reservations& reservations, const Fleet::Group& group) {
  const Reservation* kept = reservations.KeptFor(group.freest);
  return absl::StrCat(WantedText(job), ", ", CountText(group.most_free), " free on ", fleet.workers()[group.freest].view->name,
                      " and kept for ", kept->job->name, ", which is before it");
}

}  // namespace

Wait Explain(absl::Time now, const Fleet& fleet, const Reservations& reservations, const WaitingJob& job, int64_t position) {
  const Fleet::Group& group = fleet.Accepting(job);
  Wait wait{job.name, position, Wait::Why::kBusy, group.largest, std::nullopt, ""};
  if (group.workers.empty()) {
    wait.why = Wait::Why::kNoSuchWorker;
    wait.text = absl::StrCat("no worker of ", WhereText(job), " accepts jobs");
  } else if (group.largest < job.slots) {
    wait.why = Wait::Why::kTooLarge;
    wait.text = absl::StrCat(WantedText(job), ", the largest of ", WhereText(job), " has ", group.largest);
  } else if (group.most_free >= job.slots) {
    wait.why = Wait::Why::kReserved;
    wait.text = ReservedText(job, fleet, reservations, group);
  } else {
    wait.text = BusyText(job, group);
  }
  absl::StrAppend(&wait.text, "; position ", position);
  const Reservation* kept = reservations.Of(job);
  if (kept != nullptr && kept->at.has_value() && *kept->at > now) {
    wait.expected_start = kept->at;
    absl::StrAppend(&wait.text, ", expected to start at ",
                    absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", *kept->at, absl::UTCTimeZone()));
  }
  return wait;
}

}  // namespace legoai::scheduler
