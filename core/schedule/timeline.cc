#include "core/schedule/timeline.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace legoai::parallel {
namespace {

// How it changes the number of microbatches whose activations are kept: for the weight gradients until the last of them.
int64_t Keeps(const Action& action) {
  switch (action.kind) {
    case Action::Kind::kForward: return 1;
    case Action::Kind::kInputGradient: return 0;
    default: return -1;
  }
}

std::vector<Timeline::Span> SpansOf(const std::vector<Action>& actions, const std::vector<int64_t>& ends) {
  std::vector<Timeline::Span> spans;
  for (size_t i = 0; i < actions.size(); ++i) spans.push_back({actions[i], ends[i] - CostOf(actions[i]), ends[i]});
  return spans;
}

int64_t MostInFlight(const std::vector<Timeline::Span>& spans) {
  int64_t now = 0, most = 0;
  for (const Timeline::Span& span : spans) {
    now += Keeps(span.action);
    most = std::max(most, now);
  }
  return most;
}

// `text` in a field of `width`.
std::string Cell(std::string text, size_t width) {
  text.resize(width, ' ');
  return text;
}

}  // namespace

Timeline TimelineOf(const Schedule& schedule) {
  const std::vector<std::vector<int64_t>> ends = CompletionTimes(schedule);
  Timeline timeline;
  int64_t busy = 0;
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    timeline.ranks.push_back(SpansOf(schedule.ranks[rank], ends[rank]));
    timeline.in_flight.push_back(MostInFlight(timeline.ranks.back()));
    for (const Timeline::Span& span : timeline.ranks.back()) {
      busy += span.end - span.begin;
      timeline.length = std::max(timeline.length, span.end);
    }
  }
  const int64_t all = timeline.length * static_cast<int64_t>(schedule.ranks.size());
  timeline.bubble_share = static_cast<double>(all - busy) / static_cast<double>(all);
  return timeline;
}

std::string TimelineText(const Timeline& timeline) {
  const bool loops = std::any_of(timeline.ranks[0].begin(), timeline.ranks[0].end(), [&](const Timeline::Span& span) {
    return span.action.chunk != timeline.ranks[0][0].action.chunk;
  });
  size_t width = 0;
  for (const auto& spans : timeline.ranks) {
    for (const Timeline::Span& span : spans) width = std::max(width, Print(span.action, loops).size() + 1);
  }
  std::string text;
  for (size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    std::string line = Cell(absl::StrCat("rank ", rank), std::to_string(timeline.ranks.size() - 1).size() + 7);
    const auto wait = [&](int64_t units) {
      for (; units > 0; --units) line += Cell(".", width);
    };
    int64_t now = 0;
    for (const Timeline::Span& span : timeline.ranks[rank]) {
      wait(span.begin - now);
      line += Cell(Print(span.action, loops), width * (span.end - span.begin));
      now = span.end;
    }
    wait(timeline.length - now);
    line.resize(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

}  // namespace legoai::parallel
