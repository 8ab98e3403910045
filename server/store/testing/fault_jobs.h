// Jobs that a store is filled with while PostgreSQL fails, and how long it is waited for.
#pragma once

#include <cstdint>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/store/postgres_store.h"
#include "server/store/testing/must_read.h"

namespace legoai::store {

inline v1::Job MakeJob(int64_t number, size_t bytes = 10) {
  v1::Job job;
  job.set_name(absl::StrCat("projects/default/jobs/", 100'000 + number));
  job.set_version(1);
  // What compresses would not fill a disk.
  std::mt19937_64 random(static_cast<uint64_t>(number));
  std::string text(bytes, ' ');
  for (char& letter : text) letter = static_cast<char>('!' + random() % 90);
  job.mutable_spec()->mutable_model()->set_config_json(text);
  return job;
}

inline absl::Status Insert(Store& store, int64_t number, size_t bytes = 10) {
  return store.Write([&](Transaction& t) { return t.InsertJob(MakeJob(number, bytes), {}); });
}

inline int64_t Count(Store& store) {
  return MustRead(store, [](ReadTransaction& t) { return t.CountJobs({.project = "projects/default"}); });
}

// Times that a test can wait for.
inline PostgresOptions Short() {
  PostgresOptions options;
  options.times = {.connect = absl::Seconds(2),
                   .lock = absl::Milliseconds(500),
                   .statement = absl::Seconds(2),
                   .silence = absl::Seconds(3)};
  options.patience = absl::Seconds(4);
  options.other_server = absl::Milliseconds(500);
  return options;
}

}  // namespace legoai::store
