//! The picture of a state.

use super::super::nodes::Nodes;
use super::super::plain;
use super::super::view::{Link, View};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Paragraph, Row, Sparkline, Table};
use ratekeeper_server::admin_json::{NodeState, SecondFigures};

/// The most nodes in the picture; those in trouble come first.
const NODES_MAX: usize = 8;

/// Draws `nodes`, with the rules from `first_row` on.
pub(in super::super) fn draw(frame: &mut Frame<'_>, nodes: &Nodes, first_row: usize) {
    nodes.with_shown(|view| draw_view(frame, nodes, view, first_row));
}

fn draw_view(frame: &mut Frame<'_>, nodes: &Nodes, view: &View, first_row: usize) {
    let each = nodes.ordered();
    let each_shown = match nodes.are_many() {
        true => each.len().min(NODES_MAX),
        false => 0,
    };
    // The border and the heads need three lines.
    let each_lines = match u16::try_from(each_shown) {
        Ok(count @ 1..) => count + 3,
        _ => 0,
    };
    let [head, each_area, charts, middle, rules, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(each_lines),
        Constraint::Length(6),
        Constraint::Length(9),
        Constraint::Min(4),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let bold = Style::new().add_modifier(Modifier::BOLD);
    frame.render_widget(Line::styled(plain::head(view), bold), head);
    if each_shown > 0 {
        draw_nodes(frame, &each, each_shown, each_area);
    }
    draw_charts(frame, view, charts);
    if let Some(state) = &view.state {
        let [keys, health] =
            Layout::horizontal([Constraint::Percentage(55), Constraint::Percentage(45)])
                .areas(middle);
        draw_keys(frame, state, keys);
        draw_health(frame, state, health);
        draw_rules(frame, view, state, first_row, rules);
    }
    frame.render_widget(foot_line(view), foot);
}

fn draw_nodes(frame: &mut Frame<'_>, nodes: &[&View], shown: usize, area: Rect) {
    let rows = nodes.iter().take(shown).map(|view| {
        let is_well = view.live().is_some_and(|state| state.faults.is_empty());
        let style = match is_well {
            true => Style::new(),
            false => Style::new().fg(Color::Red),
        };
        Row::new(plain::node(view)).style(style)
    });
    let widths = [
        Constraint::Fill(2),
        Constraint::Fill(1),
        Constraint::Length(10),
        Constraint::Length(10),
        Constraint::Length(12),
        Constraint::Length(8),
    ];
    let heads = Row::new(plain::NODE_HEADS).style(Style::new().add_modifier(Modifier::BOLD));
    let title = format!(" nodes ({shown} of {}) ", nodes.len());
    let table = Table::new(rows, widths).header(heads);
    frame.render_widget(table.block(Block::bordered().title(title)), area);
}

fn draw_charts(frame: &mut Frame<'_>, view: &View, area: Rect) {
    let [figures, charts] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(3)]).areas(area);
    if let Some(state) = &view.state {
        frame.render_widget(Line::raw(plain::decisions(state)), figures);
    }
    let [allowed, denied] = Layout::horizontal([Constraint::Fill(1); 2]).areas(charts);
    draw_chart(
        frame,
        view,
        ("allowed", Color::Green),
        |second| second.allowed,
        allowed,
    );
    draw_chart(
        frame,
        view,
        ("denied", Color::Red),
        |second| second.denied,
        denied,
    );
}

/// The last seconds, as many as there are columns; the latest is on the right.
fn draw_chart(
    frame: &mut Frame<'_>,
    view: &View,
    (name, color): (&str, Color),
    rate: fn(SecondFigures) -> u64,
    area: Rect,
) {
    let block = Block::bordered();
    let columns = usize::from(block.inner(area).width);
    let left_out = view.seconds.len().saturating_sub(columns);
    let seconds = view.seconds.iter().skip(left_out);
    let rates: Vec<u64> = seconds.map(|second| rate(*second)).collect();
    let most = rates.iter().max().copied().unwrap_or_default();
    let title = format!(" {name}/s, at most {most} in {} s ", rates.len());
    let chart = Sparkline::default()
        .block(block.title(title))
        .style(Style::new().fg(color))
        .data(&rates);
    frame.render_widget(chart, area);
}

fn draw_keys(frame: &mut Frame<'_>, state: &NodeState, area: Rect) {
    let block = Block::bordered().title(" denied most in the last minute ");
    let mut rows = plain::keys(&state.top);
    if rows.is_empty() {
        rows.push(vec!["none".to_owned()]);
    }
    if !state.top_shadowed.is_empty() {
        let head = "would be denied, were the rules enforced (last hour)";
        rows.push(vec![String::new(), head.to_owned()]);
        rows.extend(plain::keys(&state.top_shadowed));
    }
    let rows = rows.into_iter().map(Row::new);
    let widths = [
        Constraint::Length(8),
        Constraint::Fill(1),
        Constraint::Fill(1),
    ];
    frame.render_widget(Table::new(rows, widths).block(block), area);
}

fn draw_health(frame: &mut Frame<'_>, state: &NodeState, area: Rect) {
    let lines = plain::health(state).into_iter().map(|line| {
        let is_bad = ["FAULT", "RULES REFUSED"]
            .iter()
            .any(|word| line.starts_with(word))
            || line.contains("  open,");
        let style = match is_bad {
            true => Style::new().fg(Color::Red),
            false => Style::new(),
        };
        Line::styled(line, style)
    });
    let text = Paragraph::new(lines.collect::<Vec<_>>());
    frame.render_widget(text.block(Block::bordered().title(" health ")), area);
}

fn draw_rules(frame: &mut Frame<'_>, view: &View, state: &NodeState, first: usize, area: Rect) {
    let title = format!(" rules ({} of {}) ", view.rows.len(), state.rules_total);
    let rows = view.rows.iter().skip(first);
    let rows = rows.map(|row| {
        let style = match row.last.denied > 0 {
            true => Style::new().fg(Color::Red),
            false => Style::new(),
        };
        Row::new(plain::rule(row)).style(style)
    });
    let widths = [
        Constraint::Fill(3),
        Constraint::Fill(2),
        Constraint::Length(9),
        Constraint::Length(9),
        Constraint::Length(9),
        Constraint::Length(12),
        Constraint::Length(12),
    ];
    let heads = Row::new(plain::RULE_HEADS).style(Style::new().add_modifier(Modifier::BOLD));
    let table = Table::new(rows, widths).header(heads);
    frame.render_widget(table.block(Block::bordered().title(title)), area);
}

fn foot_line(view: &View) -> Line<'static> {
    let warning = Style::new().fg(Color::Black).bg(Color::Yellow);
    match &view.link {
        Link::Connecting => Line::raw(format!("connecting to {}", view.address)),
        Link::Live => Line::raw("q: quit   up, down: scroll the rules"),
        Link::Ended => Line::styled(format!("{} shuts down", view.address), warning),
        Link::Lost(why, pause) | Link::Refused(why, pause) => Line::styled(
            format!("{why}; trying again in {pause} s   q: quit"),
            warning,
        ),
    }
}
