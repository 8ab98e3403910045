#include "planner/autosac/local_policy.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "planner/autosac/milp.h"
#include "proto/status.h"

namespace legoai::planner {
namespace {

// That the dynamic program goes on with; of more, those that are apart by a share of the room.
constexpr size_t kMostSets = 2000;

// What there is to choose: groups whose keeping saves time, the most memory per second of recomputation first, and what room they
// have.
struct Choice {
  std::vector<int> groups;
  int64_t room = 0, total = 0;
};

Choice ChoiceOf(const std::vector<Group>& groups, int64_t budget) {
  Choice choice;
  choice.room = budget;
  for (int i = 0; i < static_cast<int>(groups.size()); ++i) {
    const Group& group = groups[i];
    choice.total += group.bytes;
    if (group.always_stored) choice.room -= group.bytes;
    if (!group.always_stored && !group.always_recomputed && group.seconds > 0) choice.groups.push_back(i);
  }
  std::stable_sort(choice.groups.begin(), choice.groups.end(),
                   [&](int a, int b) { return groups[a].MemoryPerSecond() > groups[b].MemoryPerSecond(); });
  return choice;
}

// Keeps what has room beside what is kept, the most time per byte first.
void KeepWhatFits(const std::vector<Group>& groups, const Choice& choice, std::vector<bool>* keeps) {
  int64_t room = choice.room;
  for (const int i : choice.groups) room -= (*keeps)[i] ? groups[i].bytes : 0;
  for (auto i = choice.groups.rbegin(); i != choice.groups.rend(); ++i) {
    if ((*keeps)[*i] || groups[*i].bytes > room) continue;
    (*keeps)[*i] = true;
    room -= groups[*i].bytes;
  }
}

double RecomputedSeconds(const std::vector<Group>& groups, const Choice& choice, const std::vector<bool>& keeps) {
  double seconds = 0;
  for (const int i : choice.groups) seconds += keeps[i] ? 0 : groups[i].seconds;
  return seconds;
}

// Discards in order until the rest fits. The group with which it does may take far more time than what is missing is worth: each
// one behind it that is large enough is tried in its place, and the fastest of these sets is taken. With the first of them alone
// no bound holds.
void Greedy(const std::vector<Group>& groups, const Choice& choice, std::vector<bool>* keeps) {
  int64_t missing = -choice.room;
  for (const int i : choice.groups) missing += groups[i].bytes, (*keeps)[i] = true;
  if (missing <= 0) return;
  std::vector<bool> best;
  double best_seconds = std::numeric_limits<double>::infinity();
  for (const int i : choice.groups) {
    (*keeps)[i] = false;
    if (groups[i].bytes < missing) {
      missing -= groups[i].bytes;
      continue;
    }
    std::vector<bool> found = *keeps;
    KeepWhatFits(groups, choice, &found);
    const double seconds = RecomputedSeconds(groups, choice, found);
    if (seconds < best_seconds) best_seconds = seconds, best = std::move(found);
    (*keeps)[i] = true;
  }
  if (!best.empty()) *keeps = std::move(best);
}

// Groups that are kept: those of the set `before`, and one more.
struct KeptSet {
  int64_t bytes = 0;
  double seconds = 0;  // of recomputation that they save
  int before = -1, group = -1;
};

// All sets that were made, and of those that some of the groups make the undominated ones: no other one is as small and saves as
// much. By bytes, and so by seconds.
class UndominatedSets {
 public:
  explicit UndominatedSets(int64_t room) : room_(room) {}

  void Add(const Group& group, int number) {
    std::vector<int> merged;
    size_t without = 0, with = 0;
    while (without < front_.size() || with < front_.size()) {
      KeptSet larger;
      if (with < front_.size()) {
        const KeptSet& smaller = sets_[front_[with]];
        larger = {smaller.bytes + group.bytes, smaller.seconds + group.seconds, front_[with], number};
        if (larger.bytes > room_) with = front_.size();
      }
      if (without == front_.size() && with == front_.size()) break;
      const bool takes_with = without == front_.size() || (with < front_.size() && IsBefore(larger, sets_[front_[without]]));
      const double seconds = takes_with ? larger.seconds : sets_[front_[without]].seconds;
      const bool dominated = !merged.empty() && sets_[merged.back()].seconds >= seconds;
      if (takes_with && !dominated) sets_.push_back(larger);
      if (!dominated) merged.push_back(takes_with ? static_cast<int>(sets_.size()) - 1 : front_[without]);
      ++(takes_with ? with : without);
    }
    front_ = std::move(merged);
    if (front_.size() > kMostSets) ThinOut();
  }

  // That saves most.
  std::vector<int> Best() const {
    std::vector<int> kept;
    for (int at = front_.back(); sets_[at].before >= 0; at = sets_[at].before) kept.push_back(sets_[at].group);
    return kept;
  }

 private:
  static bool IsBefore(const KeptSet& a, const KeptSet& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.seconds > b.seconds;
  }

  // Keeps the one that saves most of each part of the room.
  void ThinOut() {
    const int64_t part = room_ / static_cast<int64_t>(kMostSets) + 1;
    std::vector<int> thin;
    for (const int set : front_) {
      const bool same = !thin.empty() && sets_[thin.back()].bytes / part == sets_[set].bytes / part;
      if (same) thin.pop_back();
      thin.push_back(set);
    }
    front_ = std::move(thin);
  }

  const int64_t room_;
  std::vector<KeptSet> sets_ = {{}};
  std::vector<int> front_ = {0};  // of sets_
};

void Knapsack(const std::vector<Group>& groups, const Choice& choice, std::vector<bool>* keeps) {
  if (choice.room < 0) return;
  UndominatedSets sets(choice.room);
  for (const int i : choice.groups) sets.Add(groups[i], i);
  for (const int i : sets.Best()) (*keeps)[i] = true;
}

absl::Status Ilp(const std::vector<Group>& groups, const Choice& choice, std::vector<bool>* keeps) {
  if (choice.room < 0 || choice.groups.empty()) return absl::OkStatus();
  double seconds = 0;
  for (const int i : choice.groups) seconds += groups[i].seconds;
  Milp program;
  Milp::Terms bytes;
  const double unit = static_cast<double>(std::max<int64_t>(1, choice.total));
  for (const int i : choice.groups)
    bytes.emplace_back(program.AddVariable(0, 1, -groups[i].seconds / seconds, /*integer=*/true),
                       static_cast<double>(groups[i].bytes) / unit);
  program.AddAtMost(std::move(bytes), static_cast<double>(choice.room) / unit);
  ASSIGN_OR_RETURN(const auto kept, program.Minimize({}));
  for (size_t i = 0; i < kept.size(); ++i) (*keeps)[choice.groups[i]] = kept[i] > 0.5;
  return absl::OkStatus();
}

}  // namespace

const std::vector<std::string>& LocalSolverNames() {
  static const auto* const names = new std::vector<std::string>{"greedy", "knapsack", "ilp"};
  return *names;
}

absl::StatusOr<LocalPolicy> SolveLocal(LocalSolver solver, const std::vector<Group>& groups, int64_t budget) {
  LocalPolicy policy;
  for (const Group& group : groups) policy.keeps.push_back(group.always_stored);
  const Choice choice = ChoiceOf(groups, budget);
  switch (solver) {
    case LocalSolver::kGreedy: Greedy(groups, choice, &policy.keeps); break;
    case LocalSolver::kKnapsack: Knapsack(groups, choice, &policy.keeps); break;
    case LocalSolver::kIlp: RETURN_IF_ERROR(Ilp(groups, choice, &policy.keeps)); break;
  }
  KeepWhatFits(groups, choice, &policy.keeps);
  for (size_t i = 0; i < groups.size(); ++i) {
    if (policy.keeps[i]) policy.kept_bytes += groups[i].bytes;
    if (!policy.keeps[i]) policy.recomputed_seconds += groups[i].seconds;
  }
  return policy;
}

}  // namespace legoai::planner
