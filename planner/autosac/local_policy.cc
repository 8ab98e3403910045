#include "planner/autosac/local_policy.h"

#include <algorithm>

#include "planner/autosac/milp.h"
#include "proto/status.h"

namespace legoai::planner {
namespace {

constexpr int64_t kKnapsackSteps = 1000;  // of a block's memory

// What there is to choose: groups whose keeping saves time, and what room they have.
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
  return choice;
}

// The most memory per second of recomputation first.
std::vector<int> InOrder(const std::vector<Group>& groups, const Choice& choice) {
  std::vector<int> order = choice.groups;
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return groups[a].MemoryPerSecond() > groups[b].MemoryPerSecond(); });
  return order;
}

// Keeps what has room beside what is kept, the most time per byte first.
void KeepWhatFits(const std::vector<Group>& groups, const Choice& choice, std::vector<bool>* keeps) {
  int64_t room = choice.room;
  for (const int i : choice.groups) room -= (*keeps)[i] ? groups[i].bytes : 0;
  const std::vector<int> order = InOrder(groups, choice);
  for (auto i = order.rbegin(); i != order.rend(); ++i) {
    if ((*keeps)[*i] || groups[*i].bytes > room) continue;
    (*keeps)[*i] = true;
    room -= groups[*i].bytes;
  }
}

// Discards until the rest fits.
void Greedy(const std::vector<Group>& groups, const Choice& choice, std::vector<bool>* keeps) {
  int64_t kept = 0;
  for (const int i : choice.groups) kept += groups[i].bytes, (*keeps)[i] = true;
  for (const int i : InOrder(groups, choice)) {
    if (kept <= choice.room) break;
    (*keeps)[i] = false;
    kept -= groups[i].bytes;
  }
}

void Knapsack(const std::vector<Group>& groups, const Choice& choice, std::vector<bool>* keeps) {
  if (choice.room < 0 || choice.total == 0) return;
  const int64_t step = std::max<int64_t>(1, choice.total / kKnapsackSteps), capacity = std::min(choice.room, choice.total) / step;
  const size_t n = choice.groups.size();
  const auto weight = [&](size_t i) { return (groups[choice.groups[i]].bytes + step - 1) / step; };
  std::vector<std::vector<double>> best(n + 1, std::vector<double>(capacity + 1, 0));  // time saved by the first i in c steps
  for (size_t i = 0; i < n; ++i) {
    const int64_t w = weight(i);
    for (int64_t c = 0; c <= capacity; ++c) {
      best[i + 1][c] = best[i][c];
      if (w <= c) best[i + 1][c] = std::max(best[i][c], best[i][c - w] + groups[choice.groups[i]].seconds);
    }
  }
  int64_t c = capacity;
  for (size_t i = n; i-- > 0;) {
    if (best[i + 1][c] == best[i][c]) continue;
    (*keeps)[choice.groups[i]] = true;
    c -= weight(i);
  }
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
