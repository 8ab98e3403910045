// Text: valid UTF-8 from untrusted input, the known word nearest to a mistyped one, and quantities for people. Thread-safety:
// pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"

namespace legoai {

// Text in messages is UTF-8; input may be any bytes.

bool IsUtf8(std::string_view text);

// Whether there are no control characters: none below U+0020, no DEL, none of U+0080 to U+009F. Invalid UTF-8 does not count as
// such.
bool IsPrintable(std::string_view text);

// `text` made safe for a terminal, a log or a message: invalid UTF-8 as by ToUtf8, control characters as in JSON, \n or \u001b.
// With Lines::kKeep line ends and tabs stay.
enum class Lines { kEscape, kKeep };
std::string Printable(std::string_view text, Lines lines = Lines::kEscape);

// `text` if it is UTF-8; otherwise with a question mark for every non-ASCII byte.
std::string ToUtf8(std::string_view text);

// `text` if it has at most `most_bytes`; otherwise its beginning, not cut inside a character, and "...".
std::string CutText(std::string_view text, size_t most_bytes = 80);

// The number of insertions, deletions, replacements and swaps of neighbours between two texts (optimal string alignment).
int EditDistance(std::string_view from, std::string_view to);

// The candidate with the smallest distance, the first of equals; empty without candidates. Only the beginning of a very long word
// counts.
std::string Nearest(std::string_view word, const std::vector<std::string>& candidates);

// Quantities, the same in tables, messages and logs: three digits, a space, the unit. The page does likewise
// (dashboards/web/src/format.ts).

std::string BytesText(double bytes);      // "145 MiB", "1.50 GiB"; binary
std::string SecondsText(double seconds);  // what one thing took: "3.21 ms", "3.200 s"
// How long something lasts: "45 s", "3 min 20 s", "2 h 5 min", "4 d 3 h"; "300 ms" for less than a second.
std::string DurationText(double seconds);
std::string DurationText(absl::Duration duration);
std::string CountText(double count);                 // "8.03 B", "4.60 M"
std::string WithCommas(int64_t number);              // "12,345"
std::string PercentText(double share);               // 0.4 -> "40.0 %"
std::string FlopsText(double flops_per_second);      // "989 TFLOP/s"
std::string BandwidthText(double bytes_per_second);  // "3.35 TB/s"; decimal, as data sheets have it

}  // namespace legoai
