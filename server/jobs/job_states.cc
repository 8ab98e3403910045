#include "server/jobs/job_states.h"

#include <algorithm>
#include <map>

#include "proto/enum_text.h"

namespace legoai::server {
namespace {

// What may follow a state. A job that is asked to end while nothing runs is cancelled at once; one with a lease is cancelling
// first. A lost attempt is restarting before it is leased or planned again.
const std::map<v1::JobState, std::vector<v1::JobState>>& Followers() {
  using namespace v1;  // the states' names
  static const auto* const followers = new std::map<JobState, std::vector<JobState>>{
      {SUBMITTED, {PLANNING, FAILED, CANCELLED}},
      {PLANNING, {SUBMITTED, QUEUED, RESTARTING, FAILED, CANCELLED}},
      {QUEUED, {LEASED, PLANNING, FAILED, CANCELLED}},
      {LEASED, {STARTING, RUNNING, RESTARTING, CANCELLING, SUCCEEDED, FAILED}},
      {STARTING, {RUNNING, RESTARTING, CANCELLING, SUCCEEDED, FAILED}},
      {RUNNING, {RESTARTING, CANCELLING, SUCCEEDED, FAILED}},
      {RESTARTING, {LEASED, PLANNING, FAILED, CANCELLED}},
      {CANCELLING, {CANCELLED, SUCCEEDED, FAILED}},
  };
  return *followers;
}

}  // namespace

bool IsFinal(v1::JobState state) { return state == v1::SUCCEEDED || state == v1::FAILED || state == v1::CANCELLED; }

bool HoldsLease(v1::JobState state) {
  return state == v1::LEASED || state == v1::STARTING || state == v1::RUNNING || state == v1::CANCELLING;
}

bool MayFollow(v1::JobState from, v1::JobState to) {
  const auto found = Followers().find(from);
  return found != Followers().end() && std::count(found->second.begin(), found->second.end(), to) > 0;
}

std::vector<v1::JobState> ActiveStates() {
  std::vector<v1::JobState> states;
  for (const auto& [state, followers] : Followers()) states.push_back(state);
  return states;
}

std::string StateText(v1::JobState state) { return EnumText(state); }

}  // namespace legoai::server
