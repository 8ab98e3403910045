#include "server/oidc/key_source.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/errors.h"
#include "proto/read_file.h"
#include "proto/status.h"
#include "server/metrics/log.h"

namespace legoai::oidc {

absl::StatusOr<std::unique_ptr<KeySource>> KeySource::Open(const KeySourceOptions& options) {
  std::unique_ptr<KeySource> source(new KeySource(options));
  if (!IsUrl(options.place)) {
    RETURN_IF_ERROR(source->Read());
    const MutexLock lock(source->mutex_);
    source->next_ = Clock::now() + absl::ToChronoNanoseconds(options.every);
  }
  source->thread_ = std::thread([self = source.get()] { self->Run(); });
  return source;
}

KeySource::~KeySource() {
  {
    const MutexLock lock(mutex_);
    ends_ = true;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

std::shared_ptr<const KeySet> KeySource::Keys() const {
  const MutexLock lock(mutex_);
  return keys_;
}

bool KeySource::ReadAgain() {
  const MutexLock lock(mutex_);
  if (!asked_ && Clock::now() < earliest_) return false;
  asked_ = true;
  changed_.NotifyAll();
  return true;
}

absl::Status KeySource::Read() {
  const std::string& place = options_.place;
  auto text = IsUrl(place) ? Fetch(place, options_.fetch, ends_) : ReadFile(place, static_cast<int64_t>(kMostKeySetBytes));
  if (!text.ok()) return text.status();
  auto read = KeySet::Parse(*text);
  if (!read.ok()) return read.status();
  TellLeftOut(*read);
  const auto keys = std::make_shared<const KeySet>(*std::move(read));
  const MutexLock lock(mutex_);
  keys_ = keys;
  return absl::OkStatus();
}

// For whoever wonders why a key that the provider shows is not known here.
void KeySource::TellLeftOut(const KeySet& keys) {
  const std::string left_out = absl::StrJoin(keys.others(), "; ");
  if (left_out == left_out_) return;
  left_out_ = left_out;
  if (!left_out.empty()) server::LogInfo(absl::StrCat("keys of the identity provider that are left out: ", left_out));
}

// An outage of days is one line, and its end another.
void KeySource::Tell(const absl::Status& status) {
  if (ends_ || status.ok() == !failed_) return;
  failed_ = !status.ok();
  if (status.ok()) return server::LogInfo("the identity provider's keys are read again", {}, {{"place", options_.place}});
  const char* const meanwhile = Keys() == nullptr ? "its users cannot come in" : "those that were read last count";
  const std::string why(status.message());
  server::LogWarning(absl::StrCat("the identity provider's keys cannot be read: ", why, "; until they can ", meanwhile), {},
                     {{"place", options_.place}});
}

void KeySource::Run() {
  MutexLock lock(mutex_);
  while (!ends_) {
    if (const auto until = next_; !asked_ && Clock::now() < until) {
      changed_.WaitUntil(lock, until);
      continue;
    }
    asked_ = true;
    lock.Unlock();
    const absl::Status status = Read();
    Tell(status);
    lock.Lock();
    asked_ = false;
    earliest_ = Clock::now() + absl::ToChronoNanoseconds(options_.pause);
    next_ = Clock::now() + absl::ToChronoNanoseconds(status.ok() ? options_.every : options_.pause);
  }
}

}  // namespace legoai::oidc
