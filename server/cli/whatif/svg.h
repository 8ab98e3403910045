// Building blocks of drawings: texts, lines and boxes of an SVG document, in the colours of the page
// (dashboards/web/src/style.css, light scheme). Texts are escaped. Thread-safety: pure functions.
#pragma once

#include <string>

namespace legoai::cli::svg {

inline constexpr const char* kColors[] = {"#2f6fed", "#c2410c", "#2a9d78", "#8a5cd0", "#9a6a00", "#c94f7c", "#1d7f94", "#6b7280"};
inline constexpr char kInk[] = "#1a2029", kSoft[] = "#4c5666", kGrid[] = "#dfe3e9", kBad[] = "#b3261e";

std::string Escaped(const std::string& text);

// `more`: additional attributes, each preceded by a space.
std::string TextAt(double x, double y, const std::string& text, const char* anchor = "start", const char* color = kSoft,
                   const char* more = "");
std::string Line(double x1, double y1, double x2, double y2, const char* color, const char* more = "");
// `title` is the tooltip.
std::string Box(double x, double y, double width, double height, const char* color, const std::string& title = "",
                const char* more = "");

// A whole document with its title in the upper left corner, above y = 40.
std::string Document(double width, double height, const std::string& title, const std::string& body);

}  // namespace legoai::cli::svg
